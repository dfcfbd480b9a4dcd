"""The same queries by other systems, in the same process and run. A peer that is not installed is
named as such, never invented."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.search.speed_data import Corpus, Question

_MAX_BM25 = 100_000
_QUERIES = 12
_MAX_CHROMA = 100_000


def run(of: Corpus, asked: Sequence[Question]) -> dict[str, Any]:
    """Peer -> {"p50": ms, "build_s": s} or {"skipped": why}."""
    return {**_bm25(of, asked[:_QUERIES]), "chroma": _chroma(of, asked)}


def _times(ask: Callable[[Question], object], asked: Sequence[Question]) -> dict[str, float]:
    spent = []
    for question in asked:
        started = time.perf_counter()
        ask(question)
        spent.append((time.perf_counter() - started) * 1000)
    ordered = sorted(spent)
    return {"p50": statistics.median(ordered), "p95": ordered[int(len(ordered) * 0.95)]}


def _bm25(of: Corpus, asked: Sequence[Question]) -> dict[str, Any]:
    """rank-bm25 over the same tokens, alone and with an exact numpy scan joined by RRF.

    The first is the lexical leg as the paper assistant had it; the second is what an
    EnsembleRetriever does without its wrappers, so a lower bound of its time.
    """
    from rank_bm25 import BM25Okapi

    if len(of) > _MAX_BM25:
        why = {"skipped": f"more than {_MAX_BM25:,} chunks take minutes a query"}
        return {"rank-bm25": why, "bm25 + numpy, RRF": why}
    started = time.perf_counter()
    index = BM25Okapi([[of.names[i] for i in row] for row in of.words])
    built = time.perf_counter() - started
    vectors = of.vectors.astype("float32")

    def lexical(question: Question) -> list[int]:
        ranking: list[int] = index.get_scores(question.text.split()).argsort()[::-1][:100].tolist()
        return ranking

    def ensemble(question: Question) -> list[int]:
        fused: dict[int, float] = {}
        dense = (vectors @ question.vector).argsort()[::-1][:100].tolist()
        for ranking in (lexical(question), dense):
            for rank, row in enumerate(ranking, 1):
                fused[row] = fused.get(row, 0.0) + 1.0 / (60 + rank)
        return sorted(fused, key=fused.__getitem__, reverse=True)[:10]

    return {
        "rank-bm25": {"build_s": built, **_times(lexical, asked)},
        "bm25 + numpy, RRF": {"build_s": built, **_times(ensemble, asked)},
    }


def _chroma(of: Corpus, asked: Sequence[Question]) -> dict[str, Any]:
    """Chroma's default collection (HNSW, cosine) over the same vectors."""
    if importlib.util.find_spec("chromadb") is None:
        return {"skipped": "chromadb is not installed"}
    if len(of) > _MAX_CHROMA:
        return {"skipped": f"more than {_MAX_CHROMA:,} chunks"}
    import chromadb

    client = chromadb.EphemeralClient()
    collection = client.create_collection("bench", metadata={"hnsw:space": "cosine"})
    started = time.perf_counter()
    for first in range(0, len(of), 5_000):
        rows = range(first, min(first + 5_000, len(of)))
        collection.add(
            ids=[str(r) for r in rows],
            embeddings=of.vectors[first : first + len(rows)].astype("float32").tolist(),
            documents=[of.text(r) for r in rows],
        )
    built = time.perf_counter() - started

    def ask(question: Question) -> object:
        return collection.query(query_embeddings=[question.vector.tolist()], n_results=20)

    out = {"build_s": built, **_times(ask, asked)}
    client.delete_collection("bench")
    return out
