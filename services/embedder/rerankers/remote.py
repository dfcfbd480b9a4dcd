"""Remote rerankers: `/rerank` (Cohere, Jina, vLLM and TEI spellings) and vLLM's `/score`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from services.embedder.backends.openai import estimated
from services.embedder.model import Calibration, ModelInfo, Prepared
from services.embedder.remote_http import Provider
from services.embedder.settings import RerankerSettings

# Providers answer with probabilities.
_PROBABILITY = Calibration(unrelated=0.0, relevant=0.5, exact=1.0)
_MAX_TOKENS = 8_192


class RemoteReranker:
    """`PairModel` over HTTP; the model's name is `path`, or the id."""

    def __init__(self, settings: RerankerSettings, provider: Provider, info: ModelInfo) -> None:
        self._name = settings.path or settings.id
        self._style = settings.style
        self._limit = settings.remote.batch_limit
        self._provider = provider
        self._info = info

    @property
    def info(self) -> ModelInfo:
        """The model's description."""
        return self._info

    def prepare_pairs(self, query: str, documents: Sequence[str]) -> list[Prepared]:
        """Estimate tokens and cut documents by characters."""
        prepared = []
        for document in documents:
            kept = estimated(document, self._info.max_tokens)
            prepared.append(Prepared(query, (), kept.tokens, kept.truncated, kept.text))
        return prepared

    def score(self, batch: Sequence[Prepared]) -> list[float]:
        """The provider's scores; a batch may hold pairs of several queries."""
        scores = [0.0] * len(batch)
        places: dict[str, list[int]] = {}
        for at, item in enumerate(batch):
            places.setdefault(item.text, []).append(at)
        for query, group in places.items():
            for start in range(0, len(group), self._limit):
                part = group[start : start + self._limit]
                found = self._ask(query, [batch[at].second for at in part])
                for at, score in zip(part, found, strict=True):
                    scores[at] = score
        return scores

    def close(self) -> None:
        """End waits and connections."""
        self._provider.close()

    def _ask(self, query: str, documents: list[str]) -> list[float]:
        if self._style == "score":
            payload = {"model": self._name, "text_1": query, "text_2": documents}
            return by_index(self._provider.post("/score", payload), len(documents))
        # TEI calls the documents texts; both spellings in one call satisfy every server.
        payload = {"model": self._name, "query": query, "documents": documents, "texts": documents}
        return by_index(self._provider.post("/rerank", payload), len(documents))


def by_index(answer: Any, count: int) -> list[float]:
    """Scores in the order of the documents, from `results`, `data` or a bare list of entries.

    Raises ValueError unless every document has one score.
    """
    entries = answer
    if isinstance(answer, dict):
        entries = answer.get("results", answer.get("data"))
    if not isinstance(entries, list) or len(entries) != count:
        raise ValueError("the provider's answer has not one score for each document")
    scores: dict[int, float] = {}
    for at, entry in enumerate(entries):
        value = entry.get("relevance_score", entry.get("score"))
        if value is None:
            raise ValueError("the provider's answer has an entry without a score")
        scores[int(entry.get("index", at))] = float(value)
    if sorted(scores) != list(range(count)):
        raise ValueError("the provider's answer has wrong indices")
    return [scores[at] for at in range(count)]


def load(settings: RerankerSettings) -> RemoteReranker:
    """Prepare the connection; nothing is asked yet. Raises ModelUnavailable without an address."""
    provider = Provider(settings.remote)
    parts = (settings.remote.base_url, settings.path or settings.id, settings.style)
    info = ModelInfo(
        id=settings.id,
        revision="remote-" + hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:9],
        backend="remote",
        dimensions=0,
        max_tokens=settings.max_tokens or _MAX_TOKENS,
        calibration=Calibration(*settings.calibration) if settings.calibration else _PROBABILITY,
        kinds=frozenset(),
        device="remote",
        dtype="",
        can_rerank=True,
    )
    return RemoteReranker(settings, provider, info)
