"""Speed and growth of the retriever: `python -m benchmarks.search.speed`.

A retriever in a process of its own serves Search over a real socket from a real PostgreSQL, with
synthetic collections of growing size. The question is embedded at once and that is reported apart;
reranking is off. Results go to benchmarks/results/search-speed.{json,md} and growth plots beside
them.

QUICK=1 stops at 50,000 chunks; SIZES="1000,1000000" names other sizes.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import QUICK
from benchmarks.search import speed_data, speed_peers, speed_report, speed_server
from benchmarks.search.speed_data import Corpus, Question
from benchmarks.search.speed_server import Bench
from nianlun.retriever.v1 import retriever_pb2 as pb
from tests.support.stack import Client

QUERIES = 200
RECALL_QUERIES = 50
SCOPES = 1_000
SCOPES_TO = 1_000_000
HNSW_FROM = 10_000
EXACT_TO = 100_000
NO_RERANK = pb.RerankOptions(kind=pb.RERANK_KIND_OFF)


@dataclass(frozen=True)
class Latency:
    """Milliseconds."""

    p50: float
    p95: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Latency:
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[int(len(ordered) * 0.95)])


async def search(
    bench: Bench, client: Client, collection: str, question: Question, **values: Any
) -> tuple[float, pb.SearchResponse]:
    """(milliseconds without the question's embedding, response)."""
    bench.embedder.vectors[question.text] = question.vector.tolist()
    request = pb.SearchRequest(
        query=question.text,
        scopes=[pb.SearchScope(collection_id=collection)],
        gate=pb.GATE_MODE_OFF,
        rerank=NO_RERANK,
        **values,
    )
    started = time.perf_counter()
    response = await client.retriever.Search(request)
    spent = (time.perf_counter() - started) * 1000
    return spent - _step(response, "embed_query"), response


def _step(response: pb.SearchResponse, name: str) -> float:
    return sum(t.ms for t in response.timings if t.step == name)


async def one_scope(bench: Bench, size: int, questions: int) -> dict[str, Any]:
    """Search over one collection of `size` chunks, exact and, from HNSW_FROM on, by HNSW."""
    of = speed_data.corpus(size)
    client = bench.client()
    tenant_id = client.tenant.tenant_id
    dsn = bench.database.owner_dsn
    started = time.perf_counter()
    speed_data.load(dsn, tenant_id, {"big": of})
    speed_data.analyze(dsn)
    out: dict[str, Any] = {"size": size, "load_s": time.perf_counter() - started}
    asked = speed_data.questions(of, questions)
    # A scan of all vectors takes a second a million: beyond the limit it is only shown.
    truth = speed_data.best(of, asked[:RECALL_QUERIES], 20)
    few = asked if size <= EXACT_TO else asked[:10]
    out["exact"] = await _measure(bench, client, few, truth)
    if size >= HNSW_FROM:
        out["index"] = await speed_server.build_index(bench.database, tenant_id, "big")
        if out["index"]["index"]:
            out["hnsw"] = await _measure(bench, client, asked, truth)
    out["log_query_ms"] = await _log_query(bench, client, of)
    out["memory_mb"] = bench.memory_mb()
    out["bytes"] = speed_data.sizes(dsn)
    out["peers"] = speed_peers.run(of, asked[:50])
    speed_data.clear(dsn)
    return out


async def _log_query(bench: Bench, client: Client, of: Corpus) -> float:
    """The lexical leg's median time for 20 kB of pasted text."""
    spent = []
    for first in range(5):
        text = " ".join(of.text(row) for row in range(first, len(of), len(of) // 60))[:20_000]
        question = Question(text, of.vectors[first].astype(np.float32))
        _, response = await search(bench, client, "big", question)
        spent.append(_step(response, "lexical"))
    return statistics.median(spent)


async def _measure(
    bench: Bench, client: Client, asked: Sequence[Question], truth: NDArray[np.float32]
) -> dict[str, Any]:
    """Latencies of the whole search and of each leg, and recall@20 of the dense leg."""
    for question in asked[:5]:
        await search(bench, client, "big", question)
    whole: list[float] = []
    embed: list[float] = []
    steps: dict[str, list[float]] = {"lexical": [], "dense": [], "fetch": [], "fusion": []}
    for question in asked:
        spent, response = await search(bench, client, "big", question)
        whole.append(spent)
        embed.append(_step(response, "embed_query"))
        for name, values in steps.items():
            values.append(_step(response, name))
    recall, alone = await _recall(bench, client, asked[:RECALL_QUERIES], truth)
    return {
        "search": vars(Latency.of(whole)),
        "embed_query": vars(Latency.of(embed)),
        **{name: vars(Latency.of(values)) for name, values in steps.items()},
        "dense_alone": vars(Latency.of(alone)),
        "recall20": recall,
    }


async def _recall(
    bench: Bench, client: Client, asked: Sequence[Question], truth: NDArray[np.float32]
) -> tuple[float, list[float]]:
    """recall@20 of the dense leg against numpy, and the leg's time when asked for 20."""
    off = [pb.LegSetting(leg=leg, weight=0.0) for leg in (pb.LEG_LEXICAL, pb.LEG_PHRASE)]
    legs = [*off, pb.LegSetting(leg=pb.LEG_DENSE, candidates=20)]
    shares: list[float] = []
    spent: list[float] = []
    for number, question in enumerate(asked):
        _, response = await search(bench, client, "big", question, legs=legs, top_k=20)
        spent.append(_step(response, "dense"))
        rows = [
            int(h.document_id[1:]) * speed_data.CHUNKS_PER_DOCUMENT + h.chunk.ordinal
            for h in response.hits
        ]
        # Ties of half-precision scores may be cut either way.
        floor = truth[-1, number] - 1e-3
        shares.append(sum(truth[row, number] >= floor for row in rows) / 20)
    return float(np.mean(shares)), spent


async def many_scopes(bench: Bench, size: int, questions: int) -> dict[str, Any]:
    """The same rows in 1,000 collections of one tenant, a random one asked each time."""
    of = speed_data.corpus(size)
    client = bench.client()
    each = max(1, size // SCOPES)
    scopes = min(SCOPES, size // each)
    parts = {f"s{n}": of.part(n * each, (n + 1) * each) for n in range(scopes)}
    started = time.perf_counter()
    speed_data.load(bench.database.owner_dsn, client.tenant.tenant_id, parts)
    speed_data.analyze(bench.database.owner_dsn)
    loaded = time.perf_counter() - started
    rng = np.random.default_rng(5)
    spent = []
    for number in rng.integers(scopes, size=questions + 5):
        part = parts[f"s{number}"]
        question = speed_data.questions(part, 1, seed=int(number))[0]
        spent.append((await search(bench, client, f"s{number}", question))[0])
    speed_data.clear(bench.database.owner_dsn)
    found = vars(Latency.of(spent[5:]))
    return {"size": size, "scopes": scopes, "load_s": loaded, "search": found}


async def ingestion(bench: Bench, documents: int) -> dict[str, Any]:
    """Chunks a second from text to searchable, without embedding: read, cut, tokenise, write."""
    of = speed_data.corpus(documents * 25, seed=9)
    client = bench.client()
    await client.retriever.CreateCollection(
        pb.CreateCollectionRequest(request_id="c", collection_id="ingest", model_id="bench")
    )
    inputs = [
        pb.DocumentInput(
            document_id=f"d{n}",
            text="\n\n".join(f"{of.text(r)}." for r in range(n * 25, n * 25 + 25)),
        )
        for n in range(documents)
    ]
    started = time.perf_counter()
    job = (
        await client.retriever.UpsertDocuments(
            pb.UpsertDocumentsRequest(request_id="u", collection_id="ingest", documents=inputs)
        )
    ).job
    async for update in client.retriever.WatchJob(pb.WatchJobRequest(job_id=job.job_id)):
        job = update.job
    spent = time.perf_counter() - started
    chunks = int(job.result.get("chunks", "0"))
    await client.retriever.DeleteCollection(
        pb.DeleteCollectionRequest(request_id="d", collection_id="ingest")
    )
    return {"documents": documents, "chunks": chunks, "seconds": spent, "rate": chunks / spent}


async def run(*, quick: bool, sizes: Sequence[int]) -> dict[str, Any]:
    """All measurements, as they go into the JSON file."""
    count = 60 if quick else QUERIES
    scopes_to = 10_000 if quick else SCOPES_TO
    async with speed_server.bench() as bench:
        return {
            "postgres": speed_server.postgres_settings(),
            "ingestion": await ingestion(bench, 40 if quick else 200),
            "one_scope": [await one_scope(bench, n, count) for n in sizes],
            "many_scopes": [
                await many_scopes(bench, n, count)
                for n in sizes
                # 50,000 is there for the lexical leg's limit alone.
                if n <= scopes_to and n != 50_000
            ],
        }


def main() -> int:
    """Runs, writes, prints one line per figure; exit code 1 where one is short."""
    default = "1000,10000,50000" if QUICK else "1000,10000,50000,100000,1000000"
    sizes = [int(n) for n in os.environ.get("SIZES", default).split(",")]
    results = asyncio.run(run(quick=QUICK, sizes=sizes))
    return speed_report.write(results)


if __name__ == "__main__":
    sys.exit(main())
