"""A model in plain Python whose texts say how it should behave, and a front over it."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest_asyncio

from services.embedder.cache import VectorCache
from services.embedder.engine import EmbeddingEngine
from services.embedder.front import Asked, Front, Ticket
from services.embedder.model import (
    Calibration,
    InputType,
    Kind,
    ModelInfo,
    ModelUnavailable,
    OutOfMemory,
    Prepared,
    Vectors,
)
from services.embedder.scheduler.types import Limits
from services.embedder.worker import DeviceWorker

DIMENSIONS = 8


class Killed(BaseException):
    """Ends a thread: nothing is supposed to catch it."""


class ScriptedModel:
    """One token a character. Texts that hold `poison`, `nan`, `zero`, `die` or `slow` do so."""

    def __init__(self) -> None:
        self.info = ModelInfo(
            id="scripted",
            revision="1",
            backend="test",
            dimensions=DIMENSIONS,
            supported_dimensions=(DIMENSIONS, 4),
            max_tokens=512,
            calibration=Calibration(0.0, 0.5, 1.0),
            kinds=frozenset({Kind.DENSE, Kind.MULTI_VECTOR}),
        )
        self.batches: list[list[str]] = []
        self.room = 10**9
        self.broken = False
        self.unreachable = False
        self.gate = threading.Event()
        self.gate.set()

    def prepare(
        self, texts: Sequence[str], input_type: InputType, max_tokens: int
    ) -> list[Prepared]:
        return [
            Prepared(
                t[:max_tokens],
                tuple(range(len(t[:max_tokens]))),
                len(t[:max_tokens]),
                len(t) > max_tokens,
            )
            for t in texts
        ]

    def forward(self, batch: Sequence[Prepared], kinds: frozenset[Kind]) -> list[Vectors]:
        texts = [one.text for one in batch]
        self.batches.append(texts)
        self.gate.wait(10)
        if max(map(len, texts)) * len(texts) > self.room:
            raise OutOfMemory("no room")
        if self.unreachable:
            raise ModelUnavailable("gone")
        if self.broken or any("poison" in text for text in texts):
            raise ValueError("cannot")
        if any("die" in text for text in texts):
            raise Killed
        if any("slow" in text for text in texts):
            time.sleep(0.2)
        return [
            Vectors(dense=vector(t), token_vectors=np.eye(len(t), DIMENSIONS, dtype="f4"))
            for t in texts
        ]

    def close(self) -> None:
        pass


def vector(text: str) -> np.ndarray:
    """What the model makes of a text, whatever it is batched with."""
    if "nan" in text:
        return np.full(DIMENSIONS, np.nan, dtype=np.float32)
    if "zero" in text:
        return np.zeros(DIMENSIONS, dtype=np.float32)
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
    row = np.random.default_rng(seed).normal(size=DIMENSIONS).astype(np.float32)
    return row / np.linalg.norm(row)


@dataclass
class Bench:
    """Front, worker and model of one test."""

    model: ScriptedModel
    worker: DeviceWorker
    front: Front
    cache: VectorCache
    kinds: frozenset[Kind] = field(default_factory=lambda: frozenset({Kind.DENSE}))

    async def embed(
        self,
        *texts: str,
        input_type: InputType = InputType.DOCUMENT,
        within: float | None = None,
        truncate: bool = True,
        max_tokens: int = 512,
        partial: bool = False,
    ) -> Ticket:
        deadline = None if within is None else time.monotonic() + within
        return await self.front.embed(
            self.model,
            self.worker,
            Asked(texts, input_type, self.kinds, max_tokens, truncate, deadline, partial=partial),
        )


@pytest_asyncio.fixture
async def bench() -> AsyncIterator[Bench]:
    model, cache = ScriptedModel(), VectorCache(1_000_000)
    executor = ThreadPoolExecutor(2)
    front = Front(cache, executor)
    engine = EmbeddingEngine(model)
    limits = Limits(batch_tokens=4_096, batch_items=64, queue_tokens=20_000)
    worker = DeviceWorker("test", {engine.lane: engine}, limits, front.deliver)
    worker.start()
    yield Bench(model, worker, front, cache)
    model.gate.set()
    await worker.stop()
    executor.shutdown()
