# ruff: noqa: E501 - tables read better with one entry a line
"""Speed through gRPC: AppendTurn under 32 callers, LoadMemory over many users, time to
visibility."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
import uuid
from dataclasses import dataclass
from typing import Any

import grpc.aio
import numpy as np
import psycopg

from benchmarks.memory import ceiling, peers
from benchmarks.memory.hashing import hashed_vector
from benchmarks.memory.rig import Rig, rig
from benchmarks.report import Report
from nianlun.memory.v1 import memory_pb2 as pb
from nianlun.memory.v1 import memory_pb2_grpc
from services.search import TOK_VERSION, tokenize

CALLERS = 32
_TOPICS = ("缓存", "博客评论", "数据库", "首页设计", "登录", "部署", "cache", "comments", "database",
           "design", "login", "deployment")  # fmt: skip
_CHOICES = ("Redis", "giscus", "PostgreSQL", "Figma", "OAuth", "Kubernetes", "Valkey", "Disqus")

_QUESTIONS = tuple(f"上次{topic}的方案最后用的是什么？" for topic in _TOPICS)


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    users: int
    episodes: int
    appends: int
    loads: int
    digests: int


def size() -> Size:
    """The full size, or a tenth of it with QUICK=1."""
    if os.environ.get("QUICK") == "1":
        return Size(100, 10_000, 4_000, 600, 40)
    return Size(1_000, 100_000, 20_000, 4_000, 200)


def percentile(values: list[float], share: float) -> float:
    """Percentile in the unit of `values`."""
    return float(np.percentile(np.array(values), share)) if values else float("nan")


def seed(owner_dsn: str, tenant: str, wanted: Size) -> list[tuple[str, str]]:
    """Notes, terms and vectors of all users, by COPY; (user, note) of each."""
    rng = random.Random(7)
    users = [f"user-{n}" for n in range(wanted.users)]
    per_user = wanted.episodes // wanted.users
    with psycopg.connect(owner_dsn) as conn:
        conn.execute("SELECT set_config('nianlun.tenant_id', %s, false)", (tenant,))
        rows: list[tuple[str, str, str]] = []
        for user in users:
            conn.execute("SELECT memory.advance_user(%s, 'Asia/Shanghai')", (user,))
            rows += [(user, str(uuid.uuid4()), _note(rng)) for _ in range(per_user)]
        with conn.cursor().copy(
            "COPY memory.episodes (tenant_id, user_id, episode_id, session_id, note, note_key,"
            " event_time, origin, language, etag) FROM STDIN"
        ) as copy:
            for user, item, note in rows:
                day = f"2026-{rng.randint(1, 10):02d}-{rng.randint(1, 28):02d}"
                copy.write_row((tenant, user, item, "s", note, f"={item}", day, "rules", "zh", "e"))
        with conn.cursor().copy(
            "COPY memory.lexical (tenant_id, user_id, kind, item_id, tok_version, terms) FROM STDIN"
        ) as copy:
            for user, item, note in rows:
                copy.write_row((tenant, user, "episode", item, TOK_VERSION, tokenize(note)))
        with conn.cursor().copy(
            "COPY memory.vectors (tenant_id, user_id, model_id, kind, item_id, vector) FROM STDIN"
        ) as copy:
            for user, item, note in rows:
                vector = json.dumps([round(x, 4) for x in hashed_vector(note)])
                copy.write_row((tenant, user, "hash@1", "episode", item, vector))
        for number, user in enumerate(users):
            _facts(conn, tenant, user, number)
    with psycopg.connect(owner_dsn, autocommit=True) as conn:
        # What a running system has done long ago; else the measurement pays for the seeding.
        conn.execute("VACUUM (ANALYZE)")
        conn.execute("CHECKPOINT")
    return [(user, note) for user, _, note in rows]


def _note(rng: random.Random) -> str:
    topic, choice, number = rng.choice(_TOPICS), rng.choice(_CHOICES), rng.randint(1, 99_999)
    return f"用户决定：{topic}的第 {number} 版方案用 {choice}，下周再评审一次"


def _facts(conn: psycopg.Connection[Any], tenant: str, user: str, number: int) -> None:
    for attribute, value in (("name", f"用户{number}"), ("occupation", "工程师"), ("city", "上海")):
        conn.execute(
            "INSERT INTO memory.facts (tenant_id, user_id, fact_id, kind, attribute, value,"
            " value_key,"
            " statement, cardinality, state, valid_from, recorded_from, origin, language, etag)"
            " VALUES (%s, %s, gen_random_uuid(), 'fact', %s, %s, %s, %s, 'one', 'active',"
            " now(), now(),"
            " 'rules', 'zh', 'e')",
            (tenant, user, attribute, value, value, f"用户的{attribute}是{value}"),
        )


async def _callers(count: int, work: list[Any], call: Any) -> tuple[list[float], float]:
    """(latencies in ms, seconds in all) of `call` over `work` by `count` callers."""
    queue = iter(work)
    latencies: list[float] = []

    async def caller() -> None:
        for item in queue:
            started = time.perf_counter()
            await call(item)
            latencies.append((time.perf_counter() - started) * 1000)

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(count)))
    return latencies, time.perf_counter() - started


async def measure(bench: Rig, report: Report, wanted: Size) -> None:
    """All figures of speed."""
    channels = [
        grpc.aio.insecure_channel(bench.target, (("grpc.use_local_subchannel_pool", 1),))
        for _ in range(4)
    ]
    stubs: list[Any] = [memory_pb2_grpc.MemoryServiceStub(c) for c in channels]
    await _appends(bench, report, wanted, stubs)
    await _loads(bench, report, wanted, stubs)
    await _searches(bench, report, wanted, stubs[0])
    await _visibility(bench, report, wanted, stubs[0])
    for channel in channels:
        await channel.close()


def _turn(user: str, text: str) -> pb.AppendTurnRequest:
    messages = [
        pb.Message(role=pb.ROLE_USER, text=text),
        pb.Message(role=pb.ROLE_ASSISTANT, text="好的，已经记下了，下次继续。"),
    ]
    return pb.AppendTurnRequest(
        request_id=uuid.uuid4().hex, user_id=user, session_id="bench", messages=messages
    )


async def _appends(bench: Rig, report: Report, wanted: Size, stubs: list[Any]) -> None:
    rng = random.Random(1)
    work = [
        (n, _turn(f"writer-{rng.randrange(2_000)}", f"{_note(rng)}，因为它更轻，社区也更活跃。"))
        for n in range(wanted.appends)
    ]

    async def append(item: tuple[int, pb.AppendTurnRequest]) -> None:
        await stubs[item[0] % len(stubs)].AppendTurn(item[1], metadata=bench.metadata)

    await _callers(CALLERS, work[:200], append)
    before = _cpu(bench)
    latencies, seconds = await _callers(CALLERS, work[200:], append)
    spent = {name: used - before[name] for name, used in _cpu(bench).items()}
    rate = len(latencies) / seconds
    report.figure("append_p95_ms", percentile(latencies, 95), 15.0, higher=False)
    report.figure("append_per_s", rate, 1_500.0)
    report.details["append_ms"] = {f"p{p}": percentile(latencies, p) for p in (50, 95, 99)}
    report.details["append_cpu_us"] = {n: s / len(latencies) * 1e6 for n, s in spent.items()}
    bare_rate, bare_p95 = await _bare(
        bench, [request for _, request in work[: wanted.appends // 2]]
    )
    report.details["bare_grpc"] = {"per_s": bare_rate, "p95_ms": bare_p95}
    # The same request, callers and machine; the server parses it, answers, and stores nothing.
    report.figure("append_vs_bare_grpc", rate / bare_rate)


def _cpu(bench: Rig) -> dict[str, float]:
    """CPU seconds so far by process."""
    postgres = bench.postgres.pid
    return {
        "callers": time.process_time(),
        "memory": ceiling.cpu_s(bench.processes["memory"].pid),
        "postgres": ceiling.cpu_s(postgres) if postgres else 0.0,
    }


async def _bare(bench: Rig, work: list[pb.AppendTurnRequest]) -> tuple[float, float]:
    """(requests per second, p95 in ms) of a bare gRPC server for the same requests."""
    bench.spawn("bare")
    channels = [
        grpc.aio.insecure_channel(
            f"127.0.0.1:{bench.bare_port}", (("grpc.use_local_subchannel_pool", 1),)
        )
        for _ in range(4)
    ]
    stubs: list[Any] = [memory_pb2_grpc.MemoryServiceStub(c) for c in channels]

    async def call(item: tuple[int, pb.AppendTurnRequest]) -> None:
        await stubs[item[0] % len(stubs)].AppendTurn(
            item[1], metadata=bench.metadata, wait_for_ready=True
        )

    numbered = list(enumerate(work))
    await _callers(CALLERS, numbered[:200], call)
    latencies, seconds = await _callers(CALLERS, numbered[200:], call)
    for channel in channels:
        await channel.close()
    bench.kill("bare")
    return len(latencies) / seconds, percentile(latencies, 95)


async def _loads(bench: Rig, report: Report, wanted: Size, stubs: list[Any]) -> None:
    rng = random.Random(2)
    work = [
        pb.LoadMemoryRequest(
            user_id=f"user-{rng.randrange(wanted.users)}",
            session_id="new",
            query=rng.choice(_QUESTIONS),
        )
        for _ in range(wanted.loads)
    ]

    steps: dict[str, list[float]] = {}

    async def load(request: pb.LoadMemoryRequest) -> None:
        reply = await stubs[0].LoadMemory(request, metadata=bench.metadata)
        for timing in reply.timings:
            steps.setdefault(timing.step, []).append(timing.ms)

    cold, _ = await _callers(1, work[:100], load)
    # Every user once, as in a service that has been up for a while.
    warm_up = [pb.LoadMemoryRequest(user_id=f"user-{n}", query="缓存") for n in range(wanted.users)]
    await _callers(4, warm_up, load)
    steps.clear()
    latencies, seconds = await _callers(1, work, load)
    # One caller: the two lists stand in the same order. Embedding is apart.
    latencies = [t - e for t, e in zip(latencies, steps["embed_query"], strict=True)]
    report.details["load_steps_ms"] = {s: percentile(v, 50) for s, v in steps.items()}
    report.figure("load_p50_ms", percentile(latencies, 50), 8.0, higher=False)
    report.figure("load_p95_ms", percentile(latencies, 95), 20.0, higher=False)
    busy, busy_seconds = await _callers(8, work, load)
    report.details["load_ms"] = {
        "cold_p50": percentile(cold, 50),
        "cold_p95": percentile(cold, 95),
        "warm_p99": percentile(latencies, 99),
        "per_s_one_caller": len(latencies) / seconds,
        "per_s_eight_callers": len(busy) / busy_seconds,
    }


async def _searches(bench: Rig, report: Report, wanted: Size, stub: Any) -> None:
    """SearchEpisodes alone, one caller: what the peers call search. The model takes no time."""
    rng = random.Random(4)
    work = [
        pb.SearchEpisodesRequest(
            user_id=f"user-{rng.randrange(wanted.users)}", query=rng.choice(_QUESTIONS), top_k=3
        )
        for _ in range(wanted.loads // 2)
    ]

    async def search(request: pb.SearchEpisodesRequest) -> None:
        await stub.SearchEpisodes(request, metadata=bench.metadata)

    latencies, _ = await _callers(1, work, search)
    report.figure("search_p50_ms", percentile(latencies, 50), higher=False)
    report.figure("search_p95_ms", percentile(latencies, 95), higher=False)


async def _visibility(bench: Rig, report: Report, wanted: Size, stub: Any) -> None:
    """Fresh: in the very next call. Digested: until the note is there."""
    missed = 0
    for number in range(wanted.digests):
        user = f"fresh-{number}"
        await stub.AppendTurn(_turn(user, f"暗号是 word{number}"), metadata=bench.metadata)
        request = pb.LoadMemoryRequest(user_id=user, query="暗号")
        found = await stub.LoadMemory(request, metadata=bench.metadata)
        missed += f"word{number}" not in found.rendered
    report.figure("fresh_missed", missed, 0.0, higher=False)
    _fresh_queue(bench)
    waits = []
    for number in range(wanted.digests):
        user = f"digest-{number}"
        started = time.perf_counter()
        await stub.AppendTurn(_turn(user, f"我们决定用 tool{number}"), metadata=bench.metadata)
        while True:
            reply = await stub.GetPosition(
                pb.GetPositionRequest(user_id=user), metadata=bench.metadata
            )
            if reply.undigested_turns == 0:
                break
            await asyncio.sleep(0.005)
        waits.append((time.perf_counter() - started) * 1000)
    report.figure("digested_p95_ms", percentile(waits, 95), higher=False)


def _fresh_queue(bench: Rig) -> None:
    """Drop what the appends queued, then start the worker: the digests that follow wait for nobody."""
    with psycopg.connect(bench.postgres.dsn(), autocommit=True) as conn:
        conn.execute("TRUNCATE memory.jobs")
        conn.execute("TRUNCATE memory_queue.procrastinate_jobs CASCADE")
        conn.execute("UPDATE memory.turns SET digest_state = 'done'")
    bench.spawn("worker")
    time.sleep(3)


def run(report: Report) -> None:
    """Seed, start the service, measure."""
    wanted = size()
    with rig(NIANLUN_MEMORY_POOL_MAX="8", NIANLUN_JOBS_POLL_S="0.2") as bench:
        started = time.perf_counter()
        rows = seed(bench.postgres.dsn(), bench.tenant_id, wanted)
        report.details["seed_s"] = time.perf_counter() - started
        bench.spawn("memory")
        bench.wait_serving()
        asyncio.run(measure(bench, report, wanted))
        for name in ("memory", "worker"):
            bench.kill(name)
        rng = random.Random(1)
        adds = [
            (f"writer-{rng.randrange(2_000)}", f"{_note(rng)}，因为它更轻，社区也更活跃。")
            for _ in range(wanted.appends // 10)
        ]
        searches = peers.sample(rows, list(_QUESTIONS), wanted.loads // 8, 4)
        peers.run(report, bench.postgres, rows, adds, searches, CALLERS)
