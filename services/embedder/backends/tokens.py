"""Tokenising and padding shared by the backends that run `tokenizers` models themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from services.embedder.model import Float32, ModelUnavailable, Prepared


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


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[NDArray[np.int64], Float32]:
    """Token ids (batch, longest) filled up with `pad`, and the mask: 1 where a token is, else 0."""
    longest = max(len(row) for row in rows)
    ids = np.full((len(rows), longest), pad, dtype=np.int64)
    mask = np.zeros((len(rows), longest), dtype=np.float32)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = row
        mask[at, : len(row)] = 1.0
    return ids, mask


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
