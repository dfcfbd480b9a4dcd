"""The seam between the Rerank call and the rerankers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.embedder.front import Front
from services.embedder.model import ModelInfo, PairModel, Score
from services.embedder.worker import DeviceWorker, Failure


@dataclass(frozen=True, slots=True)
class Scored:
    """Raw scores by place in the request, failures by place, and seconds in the model.

    A place that is in neither was not reached in time.
    """

    raw: dict[int, float]
    failures: dict[int, Failure]
    forward_s: float = 0.0


class Reranker(Protocol):
    """Scores documents for a query until the deadline (front's clock)."""

    @property
    def info(self) -> ModelInfo:
        """The model's description."""
        ...

    @property
    def worker(self) -> DeviceWorker:
        """Where its forward passes run."""
        ...

    @property
    def lane(self) -> str:
        """The engine it depends on."""
        ...

    async def score(self, query: str, documents: Sequence[str], deadline: float) -> Scored:
        """Whatever is scored when time is up. Raises OVERLOADED, DEADLINE_EXCEEDED."""
        ...


class PairReranker:
    """A `PairModel` behind the scheduler."""

    def __init__(self, model: PairModel, worker: DeviceWorker, front: Front) -> None:
        self._model = model
        self._front = front
        self.worker = worker
        self.lane = f"rerank:{model.info.id}"

    @property
    def info(self) -> ModelInfo:
        """The model's description."""
        return self._model.info

    async def score(self, query: str, documents: Sequence[str], deadline: float) -> Scored:
        """Scores of the pairs that were reached in time."""
        ticket = await self._front.pairs(self._model, self.worker, query, documents, deadline)
        raw: dict[int, float] = {}
        failures: dict[int, Failure] = {}
        for at, slot in enumerate(ticket.slots):
            if slot is None:
                continue
            if isinstance(slot.outcome, Score):
                raw[at] = slot.outcome.raw
            elif isinstance(slot.outcome, Failure) and slot.outcome.reason != "DEADLINE_EXCEEDED":
                failures[at] = slot.outcome
        return Scored(raw, failures, ticket.forward_s)
