"""Any server with an OpenAI-compatible `/embeddings` endpoint (TEI, vLLM, Qwen, ...)."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from services.common import logs
from services.embedder.model import (
    MODEL_FAULTS,
    Calibration,
    Float32,
    InputType,
    Kind,
    ModelInfo,
    ModelUnavailable,
    Prepared,
    Vectors,
)
from services.embedder.remote_http import Provider
from services.embedder.settings import ModelSettings

_CALIBRATION = Calibration(unrelated=0.2, relevant=0.45, exact=0.8)
_MAX_TOKENS = 8_192
_PARALLEL = 4


class OpenAiModel:
    """`EmbeddingModel` over HTTP. Token counts are estimates; the provider cuts by its own
    rules. Its dimensions are 0 until a first answer has shown them.
    """

    def __init__(self, settings: ModelSettings, provider: Provider, info: ModelInfo) -> None:
        self._shorter = settings.dimensions
        self._name = settings.path or settings.id
        self._limit = settings.remote.batch_limit
        self._encoding = settings.remote.encoding
        self._prompts = {
            InputType.QUERY: settings.query_prompt or "",
            InputType.DOCUMENT: settings.document_prompt or "",
        }
        self._provider = provider
        self._info = info
        self._pool = ThreadPoolExecutor(_PARALLEL, f"remote-{settings.id}")

    @property
    def info(self) -> ModelInfo:
        """The model's description."""
        return self._info

    def prepare(
        self, texts: Sequence[str], input_type: InputType, max_tokens: int
    ) -> list[Prepared]:
        """Prompt and estimate; a text that is longer by estimate is cut by characters."""
        return [estimated(self._prompts[input_type] + text, max_tokens) for text in texts]

    def forward(self, batch: Sequence[Prepared], kinds: frozenset[Kind]) -> list[Vectors]:
        """Dense vectors, asked for in calls of at most the provider's limit, several at once."""
        parts = [batch[at : at + self._limit] for at in range(0, len(batch), self._limit)]
        return [vectors for part in self._pool.map(self._ask, parts) for vectors in part]

    def close(self) -> None:
        """End waits and connections."""
        self._provider.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, part: Sequence[Prepared], hurried: bool = False) -> list[Vectors]:
        payload = {
            "model": self._name,
            "input": [item.text for item in part],
            "encoding_format": self._encoding,
        }
        answer = self._provider.post("/embeddings", payload, hurried=hurried)
        rows = in_order(answer, len(part))
        vectors = [Vectors(dense=_unit(decode(row.get("embedding")))) for row in rows]
        if not self._info.dimensions:
            self._learn(vectors[0])
        return vectors

    def meet(self, *, hurried: bool) -> None:
        """Ask for one vector to learn the dimensions. Raises ModelUnavailable, ModelRefused."""
        self._ask([Prepared("dimensions", (), 1)], hurried=hurried)
        if not self._info.dimensions:
            raise ModelUnavailable("the provider gave an empty vector")

    def _learn(self, first: Vectors) -> None:
        size = 0 if first.dense is None else len(first.dense)
        shorter = sorted((d for d in self._shorter if d < size), reverse=True)
        if size:
            self._info = replace(self._info, dimensions=size, supported_dimensions=(size, *shorter))


def estimated(text: str, max_tokens: int) -> Prepared:
    """Token estimate without a tokenizer: four ASCII characters a token, one other character."""
    ascii_chars = sum(map(str.isascii, text)) if not text.isascii() else len(text)
    tokens = math.ceil(ascii_chars / 4) + len(text) - ascii_chars
    if tokens <= max_tokens:
        return Prepared(text, (), max(tokens, 1))
    kept = text[: max(int(len(text) * max_tokens / tokens), 1)]
    return Prepared(kept, (), max_tokens, truncated=True)


def in_order(answer: Any, count: int) -> list[dict[str, Any]]:
    """The answer's `data`, ordered by index: providers may answer in any order.

    Raises ValueError unless every index from 0 to count - 1 is there once.
    """
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or len(data) != count:
        raise ValueError("the provider's answer has not one entry for each text")
    rows = {int(row.get("index", at)): row for at, row in enumerate(data)}
    if sorted(rows) != list(range(count)):
        raise ValueError("the provider's answer has wrong indices")
    return [rows[at] for at in range(count)]


def decode(value: Any) -> Float32:
    """A vector sent as a list of numbers or as base64 of little-endian float32.

    What is no vector becomes an empty one or one of NaN, which the check of results refuses.
    """
    if isinstance(value, str):
        return np.frombuffer(base64.b64decode(value), dtype="<f4").astype(np.float32)
    numbers = [math.nan if number is None else number for number in value or ()]
    return np.array(numbers, dtype=np.float32)


def _unit(vector: Float32) -> Float32:
    norm = float(np.linalg.norm(vector))
    unit: Float32 = vector / norm if norm > 0 else vector
    return unit


def load(settings: ModelSettings, *, needed: bool = True) -> OpenAiModel:
    """Connect, and ask for one vector to learn the dimensions. Raises ModelUnavailable, unless
    the service can do without the model: then the dimensions are learned once it answers.
    """
    provider = Provider(settings.remote)
    info = ModelInfo(
        id=settings.id,
        revision=_revision(settings),
        backend="openai",
        dimensions=0,
        max_tokens=settings.max_tokens or _MAX_TOKENS,
        calibration=Calibration(*settings.calibration) if settings.calibration else _CALIBRATION,
        device="remote",
        dtype="",
    )
    model = OpenAiModel(settings, provider, info)
    try:
        model.meet(hurried=not needed)
    except MODEL_FAULTS as error:
        if needed:
            raise
        logs.get(__name__).warning("model_away", model=settings.id, why=str(error))
    return model


def _revision(settings: ModelSettings) -> str:
    """A provider does not show its files: name, address and prompts stand for them."""
    parts = (
        settings.remote.base_url,
        settings.path or settings.id,
        settings.query_prompt or "",
        settings.document_prompt or "",
    )
    return "remote-" + hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:9]
