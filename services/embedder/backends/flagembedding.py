"""BGE-M3 through FlagEmbedding's model classes: dense, sparse (learned lexical weights), token
vectors.

The library's `encode` runs its first batch twice to find a batch size; only its model and tokenizer
are used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from FlagEmbedding import BGEM3FlagModel
from tokenizers import Tokenizer

from services.embedder.backends import files, torch_device
from services.embedder.backends.tokens import bare_tokenizer, encode
from services.embedder.model import (
    Calibration,
    Float32,
    InputType,
    Int32,
    Kind,
    ModelInfo,
    ModelUnavailable,
    Prepared,
    Vectors,
)
from services.embedder.settings import ModelSettings

_CALIBRATION = Calibration(unrelated=0.35, relevant=0.55, exact=0.8)
_SPECIAL = ("cls_token", "eos_token", "pad_token", "unk_token")


class BgeM3:
    """`EmbeddingModel` over `EncoderOnlyEmbedderM3ModelForInference`."""

    def __init__(
        self, flag: Any, tokenizer: Tokenizer, info: ModelInfo, device: torch.device
    ) -> None:
        self._model = flag.model
        self._tokenizer = tokenizer
        self._info = info
        self._device = device
        fast = flag.tokenizer
        self._pad = int(fast.pad_token_id)
        named = fast.special_tokens_map
        self._unweighted = np.array(
            [fast.convert_tokens_to_ids(named[name]) for name in _SPECIAL if name in named]
        )

    @property
    def info(self) -> ModelInfo:
        """The model's description."""
        return self._info

    def prepare(
        self, texts: Sequence[str], input_type: InputType, max_tokens: int
    ) -> list[Prepared]:
        """Tokenise and cut; BGE-M3 has no prompts."""
        return encode(self._tokenizer, texts, "", max_tokens)

    def forward(self, batch: Sequence[Prepared], kinds: frozenset[Kind]) -> list[Vectors]:
        """All kinds asked for, of one pass."""
        with torch_device.forward_pass():
            features = torch_device.batch_tensors(
                [item.ids for item in batch], self._pad, self._device
            )
            output = self._model(
                features,
                return_dense=Kind.DENSE in kinds,
                return_sparse=Kind.SPARSE in kinds,
                return_colbert_vecs=Kind.MULTI_VECTOR in kinds,
            )
            found = {name: value.float().cpu().numpy() for name, value in output.items()}
        return [self._vectors(at, item, found) for at, item in enumerate(batch)]

    def _vectors(self, at: int, item: Prepared, found: dict[str, Float32]) -> Vectors:
        dense = found["dense_vecs"][at] if "dense_vecs" in found else None
        sparse = None
        if "sparse_vecs" in found:
            weights = found["sparse_vecs"][at].reshape(-1)[: len(item.ids)]
            sparse = lexical_weights(item.ids, weights, self._unweighted)
        rows = None
        if "colbert_vecs" in found:
            # The first token has no row in the library's output.
            rows = found["colbert_vecs"][at][: len(item.ids) - 1]
        return Vectors(dense=dense, sparse=sparse, token_vectors=rows)

    def close(self) -> None:
        """Give the device's memory back."""
        self._model.to("cpu")
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def lexical_weights(
    ids: Sequence[int], weights: Float32, unweighted: np.ndarray[Any, Any]
) -> tuple[Int32, Float32]:
    """The highest weight of each token id (BGE-M3, Chen et al. 2024), highest first, without
    special tokens and without weights that are not positive.
    """
    array = np.asarray(ids, dtype=np.int32)
    kept = (weights > 0) & ~np.isin(array, unweighted)
    array, weights = array[kept], weights[kept]
    order = np.argsort(-weights, kind="stable")
    array, weights = array[order], weights[order]
    _, firsts = np.unique(array, return_index=True)
    firsts.sort()
    return array[firsts], weights[firsts].astype(np.float32)


def load(settings: ModelSettings) -> BgeM3:
    """Load a folder or hub id of BGE-M3's shape. Raises ModelUnavailable."""
    device = torch_device.choose_device(settings.device)
    dtype = torch_device.choose_dtype(settings.dtype, device)
    path = settings.path or "BAAI/bge-m3"
    try:
        flag = BGEM3FlagModel(
            path,
            use_fp16=dtype is torch.float16,
            use_bf16=dtype is torch.bfloat16,
            devices=[str(device)],
        )
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{path!r} does not load: {error}") from error
    flag.model.to(device).eval()
    config = flag.model.model.config
    size = int(config.hidden_size)
    # XLM-R counts positions from the padding id on.
    limit = int(config.max_position_embeddings) - 2
    shorter = sorted((d for d in settings.dimensions if d < size), reverse=True)
    info = ModelInfo(
        id=settings.id,
        revision=files.revision_of(path, str(dtype)),
        backend="flagembedding",
        dimensions=size,
        supported_dimensions=(size, *shorter),
        max_tokens=min(settings.max_tokens or limit, limit),
        calibration=Calibration(*settings.calibration) if settings.calibration else _CALIBRATION,
        kinds=frozenset(Kind),
        device=str(device),
        dtype=torch_device.name_of(dtype),
    )
    return BgeM3(flag, bare_tokenizer(flag.tokenizer), info, device)
