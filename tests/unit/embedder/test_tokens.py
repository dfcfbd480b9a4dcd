"""Texts laid out as one list of tokens."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.embedder.backends.tokens import packed, round_rows

PAD = 99_999
TEXTS = st.lists(st.lists(st.integers(0, 9_999), min_size=1, max_size=40), min_size=1, max_size=20)


@given(TEXTS)
def test_packed_tokens_can_be_spread_out_and_taken_back(texts: list[list[int]]) -> None:
    batch = packed(texts, PAD)
    spread = np.where(batch.mask > 0, batch.ids[batch.place], PAD)
    for row, mask, start, text in zip(spread, batch.mask, batch.starts, texts, strict=True):
        assert row[: len(text)].tolist() == text
        assert set(row[len(text) :].tolist()) <= {PAD}
        assert mask.sum() == len(text)
        assert batch.ids[start : start + len(text)].tolist() == text
        assert batch.positions[start : start + len(text)].tolist() == list(range(len(text)))
    total = sum(map(len, texts))
    assert spread.reshape(-1)[batch.back[:total]].tolist() == batch.ids[:total].tolist()
    assert set(batch.ids[total:].tolist()) <= {PAD}
    assert len(batch.ids) == len(batch.back) == len(batch.positions) == round_rows(total)


def test_few_numbers_of_rows_for_many_numbers_of_tokens() -> None:
    sizes = range(1, 4_097)
    assert all(size <= round_rows(size) <= size * 17 / 16 + 1 for size in sizes)
    assert len({round_rows(size) for size in sizes}) < 150
