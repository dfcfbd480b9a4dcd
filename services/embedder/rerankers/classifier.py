"""Cross-encoders that are sequence classifiers with one logit: MiniLM, BGE v2 and their kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer

from services.embedder.backends import files, torch_device
from services.embedder.backends.tokens import bare_tokenizer
from services.embedder.model import Calibration, ModelInfo, Prepared
from services.embedder.rerankers.pairs import LOGIT, encode_pairs
from services.embedder.settings import RerankerSettings


class SequenceClassifier:
    """`PairModel` over a transformers sequence classification model."""

    def __init__(self, model: Any, fast: Any, info: ModelInfo, device: torch.device) -> None:
        self._model = model.to(device).eval()
        self._tokenizer: Tokenizer = bare_tokenizer(fast)
        self._pad = int(fast.pad_token_id or 0)
        self._info = info
        self._device = device
        # BERT's tokenizers tell the segments apart, XLM-R's do not.
        self._segments = "token_type_ids" in fast.model_input_names

    @property
    def info(self) -> ModelInfo:
        """The model's description."""
        return self._info

    def prepare_pairs(self, query: str, documents: Sequence[str]) -> list[Prepared]:
        """Tokenise pairs."""
        return encode_pairs(self._tokenizer, query, documents, self._info.max_tokens)

    def score(self, batch: Sequence[Prepared]) -> list[float]:
        """The logit of each pair."""
        with torch_device.forward_pass():
            features = torch_device.batch_tensors(
                [item.ids for item in batch], self._pad, self._device
            )
            if self._segments:
                kinds = torch.zeros_like(features["input_ids"])
                for at, item in enumerate(batch):
                    if item.split:
                        kinds[at, item.split : len(item.ids)] = 1
                features["token_type_ids"] = kinds
            logits = self._model(**features).logits.float()
            found: list[float] = logits[:, 0].cpu().tolist()
        return found

    def close(self) -> None:
        """Give the device's memory back."""
        self._model.to("cpu")
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def describe(
    settings: RerankerSettings,
    backend: str,
    path: str,
    limit: int,
    device: torch.device,
    dtype: torch.dtype,
) -> ModelInfo:
    """The description that all torch rerankers share."""
    return ModelInfo(
        id=settings.id,
        revision=files.revision_of(path, str(dtype), settings.instruction),
        backend=backend,
        dimensions=0,
        max_tokens=min(settings.max_tokens or limit, limit),
        calibration=Calibration(*settings.calibration) if settings.calibration else LOGIT,
        kinds=frozenset(),
        device=str(device),
        dtype=torch_device.name_of(dtype),
        can_rerank=True,
    )
