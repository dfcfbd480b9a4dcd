"""Engines: what the worker of a device calls. One engine is one model and the checks of its
results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from services.embedder.model import (
    EmbeddingModel,
    Float32,
    InputType,
    Kind,
    Output,
    PairModel,
    Prepared,
    Score,
    Vectors,
)

_PROBE = "readiness"


@dataclass(frozen=True, slots=True)
class Work:
    """What one queued item asks for."""

    prepared: Prepared
    kinds: frozenset[Kind] = frozenset({Kind.DENSE})


class Engine(Protocol):
    """Runs one batch; None stands for a result that cannot be used."""

    @property
    def lane(self) -> str:
        """The name under which the scheduler knows it."""
        ...

    def run(self, works: Sequence[Work]) -> list[Output | None]:
        """One forward pass; as many results as works. Raises what the model raises."""
        ...

    def probe(self) -> bool:
        """A forward pass of a known text: is the model itself well?"""
        ...


class EmbeddingEngine:
    """Runs an `EmbeddingModel` and checks vectors: finite, not zero, right length."""

    def __init__(self, model: EmbeddingModel) -> None:
        self._model = model

    @property
    def lane(self) -> str:
        """One lane a model."""
        return f"embed:{self._model.info.id}"

    def run(self, works: Sequence[Work]) -> list[Output | None]:
        """Vectors of the union of the kinds that the works ask for."""
        kinds = frozenset(kind for work in works for kind in work.kinds)
        found = self._model.forward([work.prepared for work in works], kinds)
        if len(found) != len(works):
            raise ValueError(f"the model gave {len(found)} results for {len(works)} texts")
        size = self._model.info.dimensions
        return [
            vectors if usable(vectors, work.kinds, size) else None
            for vectors, work in zip(found, works, strict=True)
        ]

    def probe(self) -> bool:
        """True if a short query gives a usable vector."""
        prepared = self._model.prepare([_PROBE], InputType.QUERY, self._model.info.max_tokens)
        return self.run([Work(prepared[0])])[0] is not None


class PairEngine:
    """Runs a `PairModel` and checks its scores: finite."""

    def __init__(self, model: PairModel) -> None:
        self._model = model

    @property
    def lane(self) -> str:
        """One lane a model."""
        return f"rerank:{self._model.info.id}"

    def run(self, works: Sequence[Work]) -> list[Output | None]:
        """Raw scores."""
        scores = self._model.score([work.prepared for work in works])
        if len(scores) != len(works):
            raise ValueError(f"the model gave {len(scores)} scores for {len(works)} pairs")
        return [Score(score) if np.isfinite(score) else None for score in scores]

    def probe(self) -> bool:
        """True if a short pair gives a finite score."""
        prepared = self._model.prepare_pairs(_PROBE, [_PROBE])
        return self.run([Work(prepared[0])])[0] is not None


def usable(vectors: Vectors, kinds: frozenset[Kind], dimensions: int) -> bool:
    """True if every kind asked for is there and sound."""
    if Kind.DENSE in kinds and not _sound_dense(vectors.dense, dimensions):
        return False
    if Kind.SPARSE in kinds and not _sound_sparse(vectors):
        return False
    if Kind.MULTI_VECTOR in kinds:
        rows = vectors.token_vectors
        return rows is not None and rows.ndim == 2 and bool(np.isfinite(rows).all())
    return True


def _sound_dense(vector: Float32 | None, dimensions: int) -> bool:
    if vector is None or vector.shape != (dimensions,):
        return False
    norm = float(vector @ vector)
    return bool(np.isfinite(norm)) and norm > 1e-6


def _sound_sparse(vectors: Vectors) -> bool:
    if vectors.sparse is None:
        return False
    indices, weights = vectors.sparse
    return len(indices) == len(weights) and bool(np.isfinite(weights).all())
