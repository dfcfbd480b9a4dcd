"""The default reranker: late interaction over an embedding model's own token vectors. No
download.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from services.common import errors
from services.embedder.catalogue import ServedModel
from services.embedder.front import Asked, Front, Ticket
from services.embedder.model import (
    Calibration,
    Float32,
    InputType,
    Kind,
    ModelInfo,
    Vectors,
)
from services.embedder.rerankers.base import Scored
from services.embedder.scheduler.types import Priority
from services.embedder.worker import Failure
from services.search.late import max_sim

# Of the default model; see benchmarks/embed/calibrate.py.
ANCHORS = Calibration(unrelated=0.44, relevant=0.73, exact=0.92)
_MULTI = frozenset({Kind.MULTI_VECTOR})


class LateInteractionReranker:
    """Embeds query and documents through the scheduler and its cache, then scores in numpy."""

    def __init__(
        self,
        id_: str,
        served: ServedModel,
        front: Front,
        calibration: Calibration,
    ) -> None:
        self._model = model = served.model
        self._codec = served.codec
        self._front = front
        self.worker = served.worker
        self.lane = f"embed:{model.info.id}"
        self._info = replace(
            model.info,
            id=id_,
            backend="late-interaction",
            dimensions=0,
            supported_dimensions=(),
            kinds=frozenset(),
            can_rerank=True,
            calibration=calibration,
            multi_vector_codec="",
            multi_vector_dimensions=0,
            multi_vector_max_vectors=0,
        )

    @property
    def info(self) -> ModelInfo:
        """The embedding model's description, as a reranker."""
        return self._info

    async def score(self, query: str, documents: Sequence[str], deadline: float) -> Scored:
        """The search engine's late-interaction score, at full precision."""
        question = await self._embed([query], InputType.QUERY, deadline)
        slot = question.slots[0]
        if slot is None:
            return Scored({}, {})
        if not isinstance(slot.outcome, Vectors) or slot.outcome.token_vectors is None:
            raise errors.model_unavailable(self._info.id, "the query could not be embedded")
        answer = await self._embed(documents, InputType.DOCUMENT, deadline)
        found: dict[int, Float32] = {}
        failures: dict[int, Failure] = {}
        for at, done in enumerate(answer.slots):
            if done is None:
                continue
            if isinstance(done.outcome, Vectors) and done.outcome.token_vectors is not None:
                found[at] = done.outcome.token_vectors
            elif isinstance(done.outcome, Failure) and done.outcome.reason != "DEADLINE_EXCEEDED":
                failures[at] = done.outcome
        query_rows = slot.outcome.token_vectors

        def judge() -> list[float]:
            rows = [self._project(one) for one in found.values()]
            return [float(score) for score in max_sim(self._project(query_rows), rows)]

        scores = await self._front.aside(judge)
        return Scored(
            dict(zip(found, scores, strict=True)),
            failures,
            question.forward_s + answer.forward_s,
        )

    def _project(self, rows: Float32) -> Float32:
        """Token vectors where they compare best: centred, if the model comes with a codec."""
        return rows if self._codec is None else self._codec.project(rows)

    async def _embed(self, texts: Sequence[str], input_type: InputType, deadline: float) -> Ticket:
        return await self._front.embed(
            self._model,
            self.worker,
            Asked(
                texts=texts,
                input_type=input_type,
                kinds=_MULTI,
                max_tokens=self._info.max_tokens,
                deadline=deadline,
                # Someone waits for a reranking, whatever the type of its texts.
                priority=Priority.QUERY,
                partial=True,
            ),
        )
