"""Runs one peer over a database: `python -m benchmarks.memory.peer_run`, the task as JSON on
standard input, the figures as JSON on standard output. Runs in the peers' own environment, which
lacks ours."""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.memory.hashing import DIMENSIONS, hashed_vector


@dataclass
class Embedding:
    """The shared embedding, and the seconds spent in it."""

    seconds: float = 0.0

    def one(self, text: str) -> list[float]:
        """Vector of a text."""
        started = time.perf_counter()
        vector = hashed_vector(text)
        self.seconds += time.perf_counter() - started
        return vector

    def many(self, texts: Sequence[str]) -> list[list[float]]:
        """Vectors of texts."""
        return [self.one(text) for text in texts]


@dataclass(frozen=True)
class Peer:
    """What is asked of a peer. `seed` takes (user, text) pairs, and stores them its fastest way."""

    seed: Callable[[Sequence[tuple[str, str]]], None]
    add: Callable[[str, str], object]
    search: Callable[[str, str], Sequence[object]]


@contextmanager
def mem0(dsn: str, embedding: Embedding) -> Iterator[Peer]:
    """mem0 over pgvector, no language model: add with infer=False."""
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ.setdefault("OPENAI_API_KEY", "unused")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MEM0_DIR"] = folder
        from mem0 import Memory  # type: ignore[import-not-found,unused-ignore]

        store = {
            "connection_string": dsn, "collection_name": "mem0_bench", "hnsw": True,
            "embedding_model_dims": DIMENSIONS, "minconn": 1, "maxconn": 16,
        }  # fmt: skip
        memory = Memory.from_config({
            "vector_store": {"provider": "pgvector", "config": store},
            "history_db_path": f"{folder}/history.db",
        })  # fmt: skip
        memory.embedding_model = _Mem0Embedding(embedding)

        def seed(rows: Sequence[tuple[str, str]]) -> None:
            memory.vector_store.insert(
                vectors=embedding.many([text for _, text in rows]),
                payloads=[{"data": text, "user_id": user} for user, text in rows],
                ids=[str(uuid.uuid4()) for _ in rows],
            )

        def search(user: str, query: str) -> Sequence[object]:
            found: Sequence[object] = memory.search(query, filters={"user_id": user}, top_k=3)[
                "results"
            ]
            return found

        yield Peer(seed, lambda user, text: memory.add(text, user_id=user, infer=False), search)


class _Mem0Embedding:
    def __init__(self, embedding: Embedding) -> None:
        self._embedding = embedding

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """As mem0 calls it."""
        return self._embedding.one(text)

    def embed_batch(
        self, texts: Sequence[str], memory_action: str | None = None
    ) -> list[list[float]]:
        """As mem0 calls it."""
        return self._embedding.many(texts)


@contextmanager
def langgraph(dsn: str, embedding: Embedding) -> Iterator[Peer]:
    """LangGraph's PostgresStore with a vector index."""
    from langgraph.store.base import PutOp
    from langgraph.store.postgres import (  # type: ignore[import-not-found,unused-ignore]
        PostgresStore,
    )
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    arguments = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    index: Any = {"dims": DIMENSIONS, "embed": embedding.many, "fields": ["text"]}
    with ConnectionPool(dsn, min_size=1, max_size=16, kwargs=arguments) as pool:
        store = PostgresStore(pool, index=index)
        store.setup()

        def seed(rows: Sequence[tuple[str, str]]) -> None:
            store.batch([PutOp((user,), str(uuid.uuid4()), {"text": text}) for user, text in rows])

        yield Peer(
            seed,
            lambda user, text: store.put((user,), str(uuid.uuid4()), {"text": text}),
            lambda user, query: store.search((user,), query=query, limit=3),
        )


PEERS = {"mem0": mem0, "langgraph": langgraph}


def measure(peer: Peer, embedding: Embedding, task: dict[str, Any]) -> dict[str, float]:
    """Seed within a time limit, then add by many threads and search by one."""
    until = time.perf_counter() + task["seed_limit_s"]
    rows: list[tuple[str, str]] = [tuple(row) for row in task["rows"]]
    random.Random(3).shuffle(rows)
    started = time.perf_counter()
    seeded = 0
    while seeded < len(rows) and time.perf_counter() < until:
        peer.seed(rows[seeded : seeded + 500])
        seeded += len(rows[seeded : seeded + 500])
    out = {"seeded": float(seeded), "seed_s": time.perf_counter() - started}
    spent: list[float] = []

    def timed(row: tuple[str, str]) -> None:
        began = time.perf_counter()
        peer.add(*row)
        spent.append((time.perf_counter() - began) * 1000)

    with ThreadPoolExecutor(task["callers"]) as threads:
        started = time.perf_counter()
        list(threads.map(timed, [tuple(row) for row in task["adds"]]))
        seconds = time.perf_counter() - started
    out["add_per_s"] = len(spent) / seconds
    out |= {"add_p50_ms": _share(spent, 0.5), "add_p95_ms": _share(spent, 0.95)}
    spent = []
    found = 0
    for user, query in task["searches"]:
        before, began = embedding.seconds, time.perf_counter()
        found += bool(peer.search(user, query))
        spent.append((time.perf_counter() - began - (embedding.seconds - before)) * 1000)
    out |= {"search_p50_ms": _share(spent, 0.5), "search_p95_ms": _share(spent, 0.95)}
    out["searches_with_hits"] = found / max(len(spent), 1)
    return out


def _share(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def main() -> None:
    """One task."""
    task = json.load(sys.stdin)
    embedding = Embedding()
    with PEERS[task["peer"]](task["dsn"], embedding) as peer:
        found = measure(peer, embedding, task)
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
