"""The peers' half of the speed bench: `.venv-peers/bin/python peers_main.py FOLDER`.

A program of its own without the project's packages. FOLDER holds `vectors.npy` (n, d) float16,
`texts.txt` (a chunk a line, words between spaces) and `questions.json` ([text, vector]). Prints one
line of JSON: peer -> {"p50", "p95", "build_s"} in milliseconds and seconds, or {"skipped": why}.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BM25_QUERIES = 12
TOP = 20


def times(ask: Callable[[str, list[float]], object], asked: list[Any]) -> dict[str, float]:
    """Median and 95th percentile in milliseconds, after one question that warms up."""
    ask(*asked[0])
    spent = []
    for text, vector in asked:
        started = time.perf_counter()
        ask(text, vector)
        spent.append((time.perf_counter() - started) * 1000)
    ordered = sorted(spent)
    return {"p50": statistics.median(ordered), "p95": ordered[int(len(ordered) * 0.95)]}


def bm25(texts: list[str], asked: list[Any]) -> tuple[Any, dict[str, float]]:
    """rank-bm25 over the words: its own loop over all documents for each word of the question."""
    from rank_bm25 import BM25Okapi

    started = time.perf_counter()
    index = BM25Okapi([t.split() for t in texts])
    built = time.perf_counter() - started

    def ask(text: str, _vector: list[float]) -> object:
        return index.get_scores(text.split()).argsort()[::-1][:TOP]

    return index, {"build_s": built, **times(ask, asked[:BM25_QUERIES])}


def chroma(client: Any, texts: list[str], vectors: Any, asked: list[Any]) -> dict[str, float]:
    """Chroma's default collection: HNSW in memory with its own parameters."""
    collection = client.create_collection("bench")
    started = time.perf_counter()
    for first in range(0, len(texts), 5_000):
        rows = range(first, min(first + 5_000, len(texts)))
        collection.add(
            ids=[str(r) for r in rows],
            embeddings=vectors[first : rows.stop].astype(np.float32),
            documents=texts[first : rows.stop],
        )
    built = time.perf_counter() - started

    def ask(_text: str, vector: list[float]) -> object:
        return collection.query(query_embeddings=[vector], n_results=TOP)

    return {"build_s": built, **times(ask, asked)}


def ensemble(client: Any, index: Any, texts: list[str], asked: list[Any]) -> dict[str, float]:
    """LangChain's EnsembleRetriever (RRF) over its BM25Retriever and the Chroma collection."""
    from langchain_chroma import Chroma
    from langchain_classic.retrievers import EnsembleRetriever
    from langchain_community.retrievers import BM25Retriever
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings

    known = dict(asked)

    class Known(Embeddings):
        def embed_query(self, text: str) -> list[float]:
            return list(known[text])

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            raise NotImplementedError("documents come with their vectors")

    words = BM25Retriever(
        vectorizer=index,
        docs=[Document(page_content=t) for t in texts],
        k=TOP,
        preprocess_func=str.split,
    )
    store = Chroma(client=client, collection_name="bench", embedding_function=Known())
    both = EnsembleRetriever(
        retrievers=[words, store.as_retriever(search_kwargs={"k": TOP})], weights=[0.5, 0.5]
    )
    return times(lambda text, _vector: both.invoke(text), asked[:BM25_QUERIES])


def main(folder: Path) -> None:
    """Runs what is installed."""
    texts = (folder / "texts.txt").read_text("utf-8").splitlines()
    vectors = np.load(folder / "vectors.npy")
    asked = json.loads((folder / "questions.json").read_text())
    index, spent = bm25(texts, asked)
    out: dict[str, Any] = {"rank-bm25": spent}
    missing = [m for m in ("chromadb", "langchain_classic") if importlib.util.find_spec(m) is None]
    if missing:
        why = {"skipped": f"{missing[0]} is not installed (`make bench-search` does it)"}
        out |= {"chroma": why, "langchain ensemble": why}
    else:
        import chromadb
        from chromadb.config import Settings

        client = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
        out["chroma"] = chroma(client, texts, vectors, asked)
        out["langchain ensemble"] = ensemble(client, index, texts, asked)
    print(json.dumps(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
