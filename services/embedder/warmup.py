"""Warm-up over the batch shapes that a GPU will see."""

from __future__ import annotations

from services.embedder.model import MODEL_FAULTS, EmbeddingModel, InputType, Kind
from services.embedder.scheduler.types import Limits

_LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def shapes(max_tokens: int, limits: Limits) -> list[tuple[int, int]]:
    """(items, tokens) of a full batch of each length up to the model's limit, and of a single
    text.
    """
    found = []
    for length in _LENGTHS:
        if length <= max_tokens:
            found.append((1, length))
            items = min(limits.batch_items, max(limits.batch_tokens // length, 1))
            if items > 1:
                found.append((items, length))
    return found


def warm_up(model: EmbeddingModel, limits: Limits) -> int:
    """Run every shape once on a GPU, so that kernels are chosen and memory is reserved before the
    first call; returns the number of passes. A shape that does not fit is skipped: the budget
    learns it later.
    """
    if not model.info.device.startswith("cuda"):
        return 0
    passes = 0
    for items, tokens in shapes(model.info.max_tokens, limits):
        text = "a " * tokens
        batch = model.prepare([text] * items, InputType.DOCUMENT, tokens)
        try:
            model.forward(batch, frozenset({Kind.DENSE}))
        except MODEL_FAULTS:
            break
        passes += 1
    return passes
