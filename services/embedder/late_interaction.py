"""Late interaction (MaxSim) over token vectors, in numpy.

The score of a passage is the mean over the query's tokens of the best cosine among the passage's
tokens (ColBERT, Khattab and Zaharia 2020, with the mean in place of the sum, so that scores of
queries of different lengths share one scale).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


def max_sim(query: Float32, passages: Sequence[Float32]) -> Float32:
    """Scores (passages,) of `query` (q, d) against passages (t_i, d), rows of norm 1.

    All passages are scored by one matrix product. A passage without tokens, or any passage of a
    query without tokens, scores 0.
    """
    scores = np.zeros(len(passages), dtype=np.float32)
    filled = [at for at, passage in enumerate(passages) if len(passage)]
    if not filled or not len(query):
        return scores
    stacked = np.concatenate([passages[at] for at in filled])
    starts = np.cumsum([0, *(len(passages[at]) for at in filled[:-1])])
    similarities = stacked @ query.T
    best = np.maximum.reduceat(similarities, starts, axis=0)
    scores[filled] = best.mean(axis=1)
    return scores
