"""Token vectors in the form that travels: the search engine's codec, eight bits a number.

The codec itself (centring, axes, pooling of neighbours) belongs to the search engine, which stores
and scores the vectors; here it is only applied. A store may keep fewer bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.embedder.backends.e5 import MODEL_ID
from services.embedder.model import Float32, ModelInfo
from services.search import late

Int8 = NDArray[np.int8]
_INT8_MAX = 127


@dataclass(frozen=True)
class Packed:
    """Compressed vectors: int8 (n, d) and one factor a row (n,); a row is `values * scale`."""

    values: Int8
    scales: Float32


def compress(codec: late.TokenCodec, rows: Float32) -> Packed:
    """Token vectors (n, d) as at most `codec.max_vectors` int8 rows of the codec's dimensions."""
    reduced = late.pool_neighbours(codec.project(rows), codec.max_vectors)
    scales = np.maximum(np.abs(reduced).max(axis=1), 1e-12) / _INT8_MAX
    values = np.rint(reduced / scales[:, None]).astype(np.int8)
    return Packed(values, scales.astype(np.float32))


def codec_of(info: ModelInfo) -> late.TokenCodec | None:
    """The codec that comes with a model, or None. Only for backends that keep word tokens alone,
    which is what the codec was fitted on.
    """
    if not info.multi_vector_codec:
        return None
    shipped = late.shipped_codec(MODEL_ID)
    if shipped is None or shipped.name != info.multi_vector_codec:
        return None
    return shipped
