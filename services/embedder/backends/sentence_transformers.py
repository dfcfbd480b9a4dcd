"""Any sentence-transformers model, on CPU or GPU.

The library's `encode` tokenises, sorts and batches by itself; the scheduler does that here, so only
the modules' forward pass and the tokenizer are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from services.embedder.backends import files, torch_device
from services.embedder.backends.tokens import bare_tokenizer, encode, token_rows
from services.embedder.model import (
    Calibration,
    Float32,
    InputType,
    Kind,
    ModelInfo,
    ModelUnavailable,
    Prepared,
    Vectors,
)
from services.embedder.settings import ModelSettings

# Typical cosines of contrastively trained models; a model of its own should state its own.
_CALIBRATION = Calibration(unrelated=0.1, relevant=0.4, exact=0.8)
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


class SentenceTransformersModel:
    """`EmbeddingModel` over the modules of a `SentenceTransformer`."""

    def __init__(
        self,
        model: SentenceTransformer,
        tokenizer: Tokenizer,
        prompts: dict[InputType, str],
        info: ModelInfo,
        device: torch.device,
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._info = info
        self._device = device
        self._pad = int(model.tokenizer.pad_token_id or 0)

    @property
    def info(self) -> ModelInfo:
        """The model's description."""
        return self._info

    def prepare(
        self, texts: Sequence[str], input_type: InputType, max_tokens: int
    ) -> list[Prepared]:
        """Prompt, tokenise, cut."""
        return encode(self._tokenizer, texts, self._prompts[input_type], max_tokens)

    def forward(self, batch: Sequence[Prepared], kinds: frozenset[Kind]) -> list[Vectors]:
        """Dense and token vectors of one pass through all modules."""
        with torch_device.forward_pass():
            features = torch_device.batch_tensors(
                [item.ids for item in batch], self._pad, self._device
            )
            output: dict[str, Any] = self._model(features)
            dense = _normalised(output["sentence_embedding"].float().cpu().numpy())
            if Kind.MULTI_VECTOR not in kinds:
                return [Vectors(dense=row) for row in dense]
            states: Float32 = output["token_embeddings"].float().cpu().numpy()
        return [
            Vectors(dense=row, token_vectors=token_rows(states[at], len(item.ids)))
            for at, (row, item) in enumerate(zip(dense, batch, strict=True))
        ]

    def close(self) -> None:
        """Give the device's memory back."""
        self._model.to("cpu")
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def load(settings: ModelSettings) -> SentenceTransformersModel:
    """Load a folder or hub id. Raises ModelUnavailable."""
    device = torch_device.choose_device(settings.device)
    dtype = torch_device.choose_dtype(settings.dtype, device)
    path = settings.path or ("BAAI/bge-m3" if device.type == "cuda" else "")
    if not path:
        raise ModelUnavailable(f"model {settings.id!r} needs a path: a folder or a hub id")
    try:
        model = SentenceTransformer(
            path, device=str(device), model_kwargs={"dtype": dtype, "attn_implementation": "sdpa"}
        )
    except (OSError, ValueError) as error:
        raise ModelUnavailable(
            f"model {settings.id!r} at {path!r} does not load: {error}"
        ) from error
    model.eval()
    limit = int(model.max_seq_length or 512)
    max_tokens = min(settings.max_tokens or limit, limit)
    prompts = _prompts(model, settings)
    size = int(model.get_embedding_dimension() or 0)
    info = ModelInfo(
        id=settings.id,
        revision=files.revision_of(path, *prompts.values(), str(dtype)),
        backend="sentence-transformers",
        dimensions=size,
        supported_dimensions=(
            size,
            *sorted((d for d in settings.dimensions if d < size), reverse=True),
        ),
        max_tokens=max_tokens,
        calibration=Calibration(*settings.calibration) if settings.calibration else _CALIBRATION,
        kinds=frozenset({Kind.DENSE, Kind.MULTI_VECTOR}),
        device=str(device),
        dtype=torch_device.name_of(dtype),
    )
    return SentenceTransformersModel(model, bare_tokenizer(model.tokenizer), prompts, info, device)


def _prompts(model: SentenceTransformer, settings: ModelSettings) -> dict[InputType, str]:
    known: dict[str, str] = {name: text for name, text in (model.prompts or {}).items() if text}
    document = next((known[name] for name in _DOCUMENT_PROMPTS if name in known), "")
    return {
        InputType.QUERY: known.get("query", "")
        if settings.query_prompt is None
        else settings.query_prompt,
        InputType.DOCUMENT: document
        if settings.document_prompt is None
        else settings.document_prompt,
    }


def _normalised(rows: Float32) -> Float32:
    """Rows of L2 norm 1; a zero row stays zero, and is then refused by the result check."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Float32 = (rows / np.maximum(norms, 1e-12)).astype(np.float32, copy=False)
    return unit
