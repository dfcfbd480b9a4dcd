"""The calibration job: what the gate sees of questions with and without an answer, then a fit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from services.common.db import Connection, Database
from services.common.jobs import JobRun, Quarantine
from services.retriever.calibrations import Calibrations
from services.retriever.domain import Scope
from services.retriever.questions import OFF_TOPIC, questions_of
from services.retriever.searcher import Outcome, Searcher
from services.retriever.spec import SearchSpec
from services.retriever.store import calibrations as store
from services.retriever.store import collections, items
from services.search import recipes
from services.search.calibration import DEFAULT_MODEL, SHIPPED, shipped
from services.search.fitting import Sample, fit

CALIBRATE: Final = "calibrate"
_SYNTHETIC: Final = 120
_DEPTH: Final = 10


@dataclass(frozen=True)
class Calibrator:
    """Handler of calibration jobs."""

    db: Database
    searcher: Searcher
    calibrations: Calibrations

    async def run(self, job: JobRun) -> dict[str, str]:
        """Searches every question, fits the model's anchors and gate, stores them."""
        collection_id, upload_id = job.subject["collection_id"], job.subject["upload_id"]
        async with self.db.tenant() as conn:
            collection = await collections.get(conn, collection_id)
            pairs = await store.pairs(conn, upload_id)
            if collection is None:
                raise Quarantine("NOT_FOUND", "The collection is gone.")
            placed = await items.sample_texts(conn, collection_id, collection.model_id, _SYNTHETIC)
        if not pairs:
            made = questions_of([(p.document_id, p.text) for p in placed])
            pairs = [(q, [d]) for d, q in made]
        # Questions about something else: what the gate has to hold back.
        asked = [*pairs, *((q, []) for q in OFF_TOPIC)]
        samples: list[Sample] = []
        for n, (query, document_ids) in enumerate(asked, 1):
            outcome = await self.searcher.search(_spec(query, collection_id))
            seen = _sample(outcome, document_ids)
            if seen is not None:
                samples.append(seen)
            if n % 20 == 0:
                await job.stop_if_cancelled()
                await job.progress(n, len(asked))
        base = shipped(collection.model_id) or SHIPPED[DEFAULT_MODEL]
        fitted = fit(collection.model_id, samples, base)
        if fitted is None:
            raise Quarantine("FAILED_PRECONDITION", "Too few questions found their document.")
        async with self.db.tenant() as conn:
            await store.put(conn, collection.model_id, fitted, len(pairs))
            await store.drop_pairs(conn, upload_id)
        self.calibrations.forget(job.tenant_id, collection.model_id)
        await job.progress(len(asked), len(asked))
        numbers = json.loads(fitted.to_json())
        return {k: f"{v:.4f}" if isinstance(v, float) else str(v) for k, v in numbers.items()}

    @staticmethod
    async def forget(conn: Connection, subject: Mapping[str, str]) -> None:
        """Removes the pairs of a job that is removed."""
        await store.drop_pairs(conn, subject["upload_id"])


def _spec(query: str, collection_id: str) -> SearchSpec:
    base = recipes.recipe("knowledge")
    ungated = recipes.customise(base, {"gate": False, "top_k": _DEPTH})
    # Stored token vectors alone: a reranking model is no part of what is calibrated.
    return SearchSpec(query, (Scope(collection_id),), ungated, rerank_budget_s=0.0)


def _sample(outcome: Outcome, document_ids: Sequence[str]) -> Sample | None:
    """What the gate sees of the first hit; None where a right document exists and is not found."""
    ranking = outcome.ranking
    found = set()
    for hit in ranking.hits:
        number, item = outcome.of(hit.id)
        found.add(outcome.results[number].candidates[item].chunk.document_id)
    if ranking.evidence is None or (document_ids and found.isdisjoint(document_ids)):
        return None
    return Sample(ranking.evidence, relevant=bool(document_ids))
