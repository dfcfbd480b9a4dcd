"""The models of a running embedder, by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.common import errors
from services.embedder.model import EmbeddingModel
from services.embedder.rerankers.base import Reranker
from services.embedder.worker import DeviceWorker
from services.search.late import TokenCodec


@dataclass(frozen=True)
class ServedModel:
    """An embedding model, the worker that runs it, and its codec for token vectors if it has
    one.
    """

    model: EmbeddingModel
    worker: DeviceWorker
    codec: TokenCodec | None = None

    @property
    def ready(self) -> bool:
        """True if the last forward pass was good."""
        return self.worker.engine_ready(f"embed:{self.model.info.id}")


@dataclass(frozen=True)
class Catalogue:
    """Models and rerankers in the order of the settings; the first of each is the default."""

    models: Sequence[ServedModel]
    rerankers: Sequence[Reranker]

    def model(self, id_: str) -> ServedModel:
        """The model of that id, or the default for an empty one. Raises INVALID_ARGUMENT."""
        for served in self.models:
            if id_ in ("", served.model.info.id):
                return served
        raise errors.invalid_argument(
            "model", _unknown(id_, [s.model.info.id for s in self.models])
        )

    def reranker(self, id_: str) -> Reranker:
        """The reranker of that id, or the default for an empty one. Raises INVALID_ARGUMENT."""
        for reranker in self.rerankers:
            if id_ in ("", reranker.info.id):
                return reranker
        known = [reranker.info.id for reranker in self.rerankers]
        raise errors.invalid_argument("model", _unknown(id_, known))


def _unknown(id_: str, known: Sequence[str]) -> str:
    if not known:
        return "no such model is served here"
    return f"{id_[:64]!r} is not served here; known: {', '.join(known)}"
