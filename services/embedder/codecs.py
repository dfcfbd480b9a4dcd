"""Which codec compresses a model's token vectors."""

from __future__ import annotations

from services.embedder.compression import Codec
from services.embedder.model import ModelInfo


def codec_of(info: ModelInfo) -> Codec | None:
    """The codec that comes with a model, or None."""
    return None
