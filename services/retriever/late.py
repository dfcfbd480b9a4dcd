"""Late interaction over compressed token vectors (ColBERT's MaxSim, Khattab and Zaharia 2020)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.retriever.domain import TokenVectors


def unpack(tokens: TokenVectors) -> NDArray[np.float32]:
    """Rows (count, dimensions) scaled to length 1."""
    entries = np.frombuffer(tokens.entries, np.int8).reshape(-1, tokens.dimensions)
    scales = np.frombuffer(tokens.scales, "<f4")
    rows = entries.astype(np.float32) * scales[:, None]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-9), np.float32)


def max_sim(question: TokenVectors, passage: TokenVectors) -> float:
    """Mean over the question's tokens of the best cosine among the passage's tokens, in [-1, 1]."""
    left, right = unpack(question), unpack(passage)
    if not len(left) or not len(right):
        return 0.0
    return float((left @ right.T).max(axis=1).mean())
