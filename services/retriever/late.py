"""Late interaction over compressed token vectors (ColBERT's MaxSim, Khattab and Zaharia 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.retriever.domain import TokenVectors
from services.search import late


def unpack(tokens: TokenVectors) -> NDArray[np.float32]:
    """Rows (count, dimensions) scaled to length 1."""
    if not tokens.scales:
        return late.dequantise(tokens.entries, tokens.dimensions)
    entries = np.frombuffer(tokens.entries, np.int8).reshape(-1, tokens.dimensions)
    scales = np.frombuffer(tokens.scales, "<f4")
    rows = entries.astype(np.float32) * scales[:, None]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-9), np.float32)


def stored(tokens: TokenVectors) -> TokenVectors:
    """A passage's vectors as they are kept: two bits a number, no factors."""
    return TokenVectors(tokens.codec, tokens.dimensions, late.quantise(unpack(tokens)), b"")


def max_sim(question: TokenVectors, passages: Sequence[TokenVectors]) -> list[float]:
    """The engine's late-interaction score of each passage, in [-1, 1]. Blocking."""
    scores: list[float] = late.max_sim(unpack(question), [unpack(p) for p in passages]).tolist()
    return scores
