"""Any CrossEncoder of sentence-transformers with one output."""

from __future__ import annotations

from sentence_transformers import CrossEncoder

from services.embedder.backends import torch_device
from services.embedder.model import ModelUnavailable
from services.embedder.rerankers.classifier import SequenceClassifier, describe
from services.embedder.settings import RerankerSettings

_LIMIT = 512


def load(settings: RerankerSettings) -> SequenceClassifier:
    """Load a folder or hub id. Raises ModelUnavailable."""
    device = torch_device.choose_device(settings.device)
    dtype = torch_device.choose_dtype(settings.dtype, device)
    if not settings.path:
        raise ModelUnavailable(f"reranker {settings.id!r} needs a path: a folder or a hub id")
    try:
        encoder = CrossEncoder(settings.path, device=str(device), model_kwargs={"dtype": dtype})
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{settings.path!r} does not load: {error}") from error
    if encoder.num_labels != 1:
        raise ModelUnavailable(f"{settings.path!r} has {encoder.num_labels} outputs, not one")
    limit = min(int(encoder.max_seq_length or _LIMIT), 8_192)
    return SequenceClassifier(
        encoder.model,
        encoder.tokenizer,
        describe(settings, "cross-encoder", settings.path, limit, device, dtype),
        device,
    )
