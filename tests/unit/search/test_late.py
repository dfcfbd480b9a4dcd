"""Late interaction: compression and scores."""

from __future__ import annotations

import numpy as np

from services.search import late
from services.search.calibration import DEFAULT_MODEL


def codec() -> late.TokenCodec:
    found = late.shipped_codec(DEFAULT_MODEL)
    assert found is not None
    return found


def rows(count: int, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=(count, 384)).astype(np.float32)


def test_a_chunk_takes_at_most_four_kilobytes() -> None:
    assert len(codec().pack(rows(500, 0))) <= 4_096
    assert codec().pack(rows(0, 0)) == b""


def test_packed_rows_stay_near_the_projected_ones() -> None:
    one = codec()
    projected = one.project(rows(50, 1))
    kept = one.unpack(one.pack(rows(50, 1)))
    assert kept.shape == projected.shape
    assert float((kept * projected).sum(axis=1).mean()) > 0.9


def test_the_own_passage_scores_highest() -> None:
    one = codec()
    passages = {str(n): one.pack(rows(20, n)) for n in range(5)}
    found = late.rerank(one, one.project(rows(20, 3)), passages)
    assert found.absolute
    assert max(found.scores, key=found.scores.__getitem__) == "3"


def test_missing_token_vectors_are_reported() -> None:
    one = codec()
    found = late.rerank(one, one.project(rows(4, 0)), {"a": one.pack(rows(4, 0)), "b": b""})
    assert set(found.scores) == {"a"}
    assert not found.complete


def test_empty_sides_score_zero() -> None:
    nothing = np.zeros((0, 4), np.float32)
    unit = np.eye(4, dtype=np.float32)
    assert late.max_sim(nothing, [unit]).tolist() == [0.0]
    assert late.max_sim(unit, [nothing, unit]).tolist() == [0.0, 1.0]


def test_unknown_models_have_no_codec() -> None:
    assert late.shipped_codec("nobody") is None
