"""Values of embedding: what a question and an item are compared by."""

from __future__ import annotations

from dataclasses import dataclass

from services.search.types import FloatArray


@dataclass(frozen=True)
class Model:
    """An embedding model. `codec`: of its compressed token vectors, "" where it has none."""

    model_id: str
    codec: str = ""


@dataclass(frozen=True)
class PackedTokens:
    """Compressed token vectors of a text as they are stored (`services.search.late`)."""

    codec: str
    packed: bytes


@dataclass(frozen=True)
class ItemVectors:
    """What one text to be found is stored with: vector (d,) float32 of length 1."""

    vector: FloatArray
    tokens: PackedTokens | None = None


@dataclass(frozen=True)
class Question:
    """A question's vector (d,) and token vectors (m, d') of length 1.

    `tokens` is None where the model has none or the embedder left them out.
    """

    model_id: str
    vector: FloatArray
    codec: str = ""
    tokens: FloatArray | None = None
