"""BGE rerankers (v2-m3, large, base) through FlagEmbedding's model and tokenizer.

Its `compute_score` is not used: it fails on no pairs, and its search for a batch size can go on for
ever.
"""

from __future__ import annotations

import torch
from FlagEmbedding import FlagReranker

from services.embedder.backends import torch_device
from services.embedder.model import ModelUnavailable
from services.embedder.rerankers.classifier import SequenceClassifier, describe
from services.embedder.settings import RerankerSettings

_DEFAULT = "BAAI/bge-reranker-v2-m3"
_LIMIT = 1_024


def load(settings: RerankerSettings) -> SequenceClassifier:
    """Load a folder or hub id. Raises ModelUnavailable."""
    device = torch_device.choose_device(settings.device)
    dtype = torch_device.choose_dtype(settings.dtype, device)
    path = settings.path or _DEFAULT
    try:
        flag = FlagReranker(
            path,
            use_fp16=dtype is torch.float16,
            use_bf16=dtype is torch.bfloat16,
            devices=[str(device)],
        )
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{path!r} does not load: {error}") from error
    limit = min(_LIMIT, int(flag.model.config.max_position_embeddings) - 2)
    return SequenceClassifier(
        flag.model,
        flag.tokenizer,
        describe(settings, "flagembedding", path, limit, device, dtype),
        device,
    )
