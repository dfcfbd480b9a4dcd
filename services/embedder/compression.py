"""Compression of token vectors for storage beside a chunk: fewer vectors, fewer dimensions, int8.

1. Vectors are projected on the principal axes of the model's token vectors (without centring:
MaxSim
   needs inner products).
2. A text with more tokens than `max_vectors` has its most similar neighbours averaged (token
pooling,
   Clavié, Chaffin and Adams 2024, restricted to runs of tokens, which keeps it linear).
3. Each vector is normalised and stored as int8 with one scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.embedder.late_interaction import max_sim
from services.embedder.model import Float32

Int8 = NDArray[np.int8]
_INT8_MAX = 127


@dataclass(frozen=True)
class Packed:
    """Compressed vectors: int8 (n, d) and one factor a row (n,); a row is `values * scale`."""

    values: Int8
    scales: Float32

    def nbytes(self) -> int:
        """Bytes stored: numbers and factors, the latter in half precision."""
        return self.values.nbytes + 2 * len(self.scales)


@dataclass(frozen=True)
class Codec:
    """How one model's token vectors are compressed. `axes`: (dimensions in, dimensions out)."""

    name: str
    axes: Float32
    max_vectors: int

    @property
    def dimensions(self) -> int:
        """Numbers in a compressed vector."""
        return int(self.axes.shape[1])

    def project(self, rows: Float32) -> Float32:
        """Rows (n, d) on the axes, (n, d'), L2 norm 1; for queries, which are not stored."""
        return _unit(rows @ self.axes)

    def compress(self, rows: Float32) -> Packed:
        """Rows (n, d) as at most `max_vectors` int8 rows."""
        reduced = pool_neighbours(self.project(rows), self.max_vectors)
        scales = np.maximum(np.abs(reduced).max(axis=1), 1e-12) / _INT8_MAX
        values = np.rint(reduced / scales[:, None]).astype(np.int8)
        return Packed(values, scales.astype(np.float32))

    def score(self, query: Float32, passages: Sequence[Packed]) -> Float32:
        """MaxSim of a projected query (q, d') against compressed passages."""
        return max_sim(query, [p.values.astype(np.float32) * p.scales[:, None] for p in passages])


def fit_axes(rows: Float32, dimensions: int) -> Float32:
    """Principal axes (d, dimensions) of token vectors (n, d), strongest first, without centring."""
    moments = rows.T.astype(np.float64) @ rows.astype(np.float64)
    _, vectors = np.linalg.eigh(moments)
    axes: Float32 = np.ascontiguousarray(vectors[:, ::-1][:, :dimensions], dtype=np.float32)
    return axes


def pool_neighbours(rows: Float32, limit: int) -> Float32:
    """At most `limit` rows: the most similar pairs of neighbours are averaged, several a round."""
    sizes = np.ones(len(rows), dtype=np.float32)
    while len(rows) > limit:
        similar = np.einsum("ij,ij->i", rows[:-1], rows[1:])
        firsts = _disjoint(np.argsort(-similar), len(rows), len(rows) - limit)
        total = sizes[firsts] + sizes[firsts + 1]
        merged = rows[firsts] * sizes[firsts, None] + rows[firsts + 1] * sizes[firsts + 1, None]
        rows, sizes = rows.copy(), sizes.copy()
        rows[firsts], sizes[firsts] = _unit(merged), total
        kept = np.ones(len(rows), dtype=bool)
        kept[firsts + 1] = False
        rows, sizes = rows[kept], sizes[kept]
    return rows


def _disjoint(order: NDArray[np.intp], count: int, wanted: int) -> NDArray[np.intp]:
    """First places of pairs (i, i + 1), in `order`, that share no row; at most `wanted`."""
    taken = np.zeros(count + 1, dtype=bool)
    firsts: list[int] = []
    for first in order.tolist():
        if len(firsts) == wanted:
            break
        if not taken[first] and not taken[first + 1]:
            taken[first] = taken[first + 1] = True
            firsts.append(first)
    return np.array(firsts, dtype=np.intp)


def _unit(rows: Float32) -> Float32:
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    unit: Float32 = (rows / norms).astype(np.float32, copy=False)
    return unit
