"""Tokenising and padding shared by the backends that run `tokenizers` models themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from services.embedder.model import Float32, Int32, ModelUnavailable, Prepared


def encode(
    tokenizer: Tokenizer, texts: Sequence[str], prompt: str, max_tokens: int
) -> list[Prepared]:
    """Tokenise `prompt + text`; what exceeds `max_tokens` is cut before the last special token.

    The tokenizer must have neither truncation nor padding set: then encoding changes nothing in it
    and several threads may share it ("Already borrowed" comes from setting them).
    """
    prompted = [prompt + text for text in texts]
    prepared = []
    for text, encoding in zip(prompted, tokenizer.encode_batch_fast(prompted), strict=True):
        ids = encoding.ids
        truncated = len(ids) > max_tokens
        if truncated:
            ids = [*ids[: max_tokens - 1], ids[-1]]
        prepared.append(Prepared(text, tuple(ids), len(ids), truncated))
    return prepared


@dataclass(frozen=True)
class PackedBatch:
    """Texts of different lengths as one list of tokens.

    `ids`, `positions` (rows,): a token and its number in its text. `place` (batch, longest): the
    row of each place, 0 where the text has ended. `back` (rows,): the place of each row in the
    flattened (batch, longest). `mask` (batch, longest): 1 where a token is. `starts` (batch,): each
    text's first row. The list is filled up to a round number of rows, which belong to no text.
    """

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    place: Int32
    back: Int32
    mask: Float32
    starts: NDArray[np.int64]


def packed(texts: Sequence[Sequence[int]], pad: int) -> PackedBatch:
    """Token ids of texts, none of them empty, one after the other."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    total = int(lengths.sum())
    rows = round_rows(total)
    within = np.arange(lengths.max()) < lengths[:, None]
    place = np.zeros(within.shape, np.int32)
    place[within] = np.arange(total, dtype=np.int32)
    back = np.zeros(rows, np.int32)
    back[:total] = np.flatnonzero(within)
    ids = np.full(rows, pad, np.int64)
    ids[:total] = np.fromiter(chain.from_iterable(texts), np.int64, total)
    positions = np.zeros(rows, np.int64)
    positions[:total] = np.nonzero(within)[1]
    starts = np.cumsum(lengths) - lengths
    return PackedBatch(ids, positions, place, back, within.astype(np.float32), starts)


def round_rows(tokens: int) -> int:
    """The next multiple of a 32nd to a 16th of `tokens`; up to 32 of them, that number itself.

    An engine makes kernels anew for each number of rows and keeps them (4 ms and 0.9 MB measured
    with OpenVINO): a hundred numbers instead of thousands bound both for 2 % more rows.
    """
    step = 1 << max(tokens.bit_length() - 5, 0)
    return -(-tokens // step) * step


def token_rows(states: Float32, tokens: int) -> Float32:
    """(tokens - 2, dimensions): the text's own rows without the first and last special token, each
    of L2 norm 1. A text of special tokens alone keeps one row.
    """
    rows = states[1 : max(tokens - 1, 2)]
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    normalised: Float32 = (rows / norms).astype(np.float32, copy=False)
    return normalised


def bare_tokenizer(fast: Any) -> Tokenizer:
    """A private copy of a transformers tokenizer's Rust part without truncation and padding.

    Raises ModelUnavailable for a tokenizer that has no Rust part.
    """
    inner = getattr(fast, "backend_tokenizer", None)
    if inner is None:
        raise ModelUnavailable("the model has no fast tokenizer (tokenizer.json)")
    copy = Tokenizer.from_str(inner.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy
