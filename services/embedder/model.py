"""What a model is to the embedder: values that pass between the front, the scheduler and the
backends.

A backend implements `EmbeddingModel` or `PairModel` in one file of `services/embedder/backends` or
`services/embedder/rerankers`. `prepare` may run in any thread; `forward` runs in the one thread of
the model's device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]


class InputType(StrEnum):
    """What a text is; models put a different prompt before each."""

    QUERY = "query"
    DOCUMENT = "document"


class Kind(StrEnum):
    """A form in which a text can be represented."""

    DENSE = "dense"
    SPARSE = "sparse"
    MULTI_VECTOR = "multi_vector"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Raw scores (cosines or a reranker's raw score) that mean 0, 0.5 and 1; strictly
    increasing.
    """

    unrelated: float
    relevant: float
    exact: float


@dataclass(frozen=True)
class ModelInfo:
    """A served model. `max_tokens` counts prompt and special tokens; dimensions are 0 for a pure
    reranker.
    """

    id: str
    revision: str
    backend: str
    dimensions: int
    max_tokens: int
    calibration: Calibration
    kinds: frozenset[Kind] = frozenset({Kind.DENSE})
    supported_dimensions: tuple[int, ...] = ()
    max_chars: int = 200_000
    device: str = "cpu"
    dtype: str = "float32"
    can_rerank: bool = False
    multi_vector_codec: str = ""
    multi_vector_dimensions: int = 0
    multi_vector_max_vectors: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """One text (or pair) ready for the model.

    `text` has its prompt; `ids` are the token ids with special tokens, empty where the model
    tokenises elsewhere (a remote one) and `tokens` is then an estimate. `truncated` says that the
    limit cut it. `second` is the document of a pair, `split` the place of its first token in `ids`
    (0: the model has no segments).
    """

    text: str
    ids: tuple[int, ...]
    tokens: int
    truncated: bool = False
    second: str = ""
    split: int = 0


@dataclass(frozen=True, slots=True)
class Vectors:
    """What the model made of one text.

    dense: (dimensions,), L2 norm 1. sparse: vocabulary ids and positive weights, highest first.
    token_vectors: (tokens without special ones, dimensions), each row L2 norm 1.
    """

    dense: Float32 | None = None
    sparse: tuple[Int32, Float32] | None = None
    token_vectors: Float32 | None = None

    def nbytes(self) -> int:
        """Bytes of the arrays."""
        total = 0 if self.dense is None else self.dense.nbytes
        total += 0 if self.token_vectors is None else self.token_vectors.nbytes
        if self.sparse is not None:
            total += self.sparse[0].nbytes + self.sparse[1].nbytes
        return total


@dataclass(frozen=True, slots=True)
class Score:
    """A reranker's raw score of one pair."""

    raw: float


Output = Vectors | Score


class EmbeddingModel(Protocol):
    """Text to vectors."""

    @property
    def info(self) -> ModelInfo:
        """The model's description; the same for its whole life."""
        ...

    def prepare(
        self, texts: Sequence[str], input_type: InputType, max_tokens: int
    ) -> list[Prepared]:
        """Add prompts, tokenise and cut to `max_tokens`. Safe to call from several threads."""
        ...

    def forward(self, batch: Sequence[Prepared], kinds: frozenset[Kind]) -> list[Vectors]:
        """One forward pass, as many results as texts and in their order.

        Raises OutOfMemory, ModelRefused, or any of MODEL_FAULTS.
        """
        ...

    def close(self) -> None:
        """Free what the model holds."""
        ...


class PairModel(Protocol):
    """Query and document to a raw score (a cross-encoder)."""

    @property
    def info(self) -> ModelInfo:
        """The model's description; `can_rerank` is true."""
        ...

    def prepare_pairs(self, query: str, documents: Sequence[str]) -> list[Prepared]:
        """Tokenise pairs, cutting documents to the limit. Safe to call from several threads."""
        ...

    def score(self, batch: Sequence[Prepared]) -> list[float]:
        """Raw scores of one forward pass. Raises as `EmbeddingModel.forward` does."""
        ...

    def close(self) -> None:
        """Free what the model holds."""
        ...


class ModelUnavailable(RuntimeError):
    """The model cannot be loaded or reached; the message says what to do."""


class OutOfMemory(RuntimeError):
    """The batch did not fit into the device's memory."""


class ModelRefused(RuntimeError):
    """A remote provider refused the call for good; `status` is its code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


# What a forward pass may raise because of its input or its device. Anything else ends the worker,
# and the supervisor starts a new one.
MODEL_FAULTS: tuple[type[Exception], ...] = (
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    OSError,
    MemoryError,
)
