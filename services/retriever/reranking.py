"""Reranking the head: stored token vectors first, the embedder's reranker else, within a budget."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

from services.common import deadlines, errors
from services.common.db import Database
from services.common.errors import DomainError
from services.retriever import candidates
from services.retriever.domain import TokenVectors
from services.retriever.embedding import Embedder
from services.retriever.late import max_sim
from services.retriever.legs import ScopeQuery, ScopeResult
from services.retriever.spec import SearchSpec
from services.retriever.store import items
from services.search import RerankResult

_MARGIN_S: Final = 0.1


@dataclass(frozen=True)
class Note:
    """Something that was skipped or replaced. `kind`: a DegradationKind without its prefix."""

    kind: str
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RerankReport:
    """Who reranked: scores by candidate id as (score, raw score)."""

    model_id: str = ""
    scores: Mapping[str, tuple[float, float]] = field(default_factory=dict)


class Reranker:
    """Scores the head of a search."""

    def __init__(self, db: Database, embedder: Embedder, executor: Executor) -> None:
        self._db = db
        self._embedder = embedder
        self._executor = executor

    async def run(
        self,
        spec: SearchSpec,
        asked: Sequence[ScopeQuery],
        results: Sequence[ScopeResult],
        head: Sequence[str],
        questions: Mapping[str, TokenVectors],
        notes: list[Note],
    ) -> tuple[RerankReport, RerankResult | None]:
        """By stored token vectors where all of the head has them, else by the embedder."""
        if not spec.rerank_by_model:
            stored = await self._late(asked, head, questions)
            if stored is not None:
                return stored
        texts = [candidates.passage(results, h) for h in head]
        try:
            budget = min(spec.rerank_budget_s, deadlines.timeout(60.0) - _MARGIN_S)
            if budget <= 0.0:
                raise errors.deadline_exceeded("rerank")
            answer = await self._embedder.rerank(spec.rerank_model, spec.query, texts, budget)
        except DomainError as error:
            notes.append(
                Note(
                    "RERANK_SKIPPED",
                    f"The reranker did not answer ({error.reason}); hits stand in fused order.",
                    {"reason": error.reason},
                )
            )
            return RerankReport(), None
        scores = {head[i]: score for i, score in answer.scores.items() if i < len(head)}
        report = RerankReport(answer.model_id, scores)
        if answer.unhealthy:
            notes.append(
                Note(
                    "MODEL_UNHEALTHY",
                    "The reranker gave every passage the same score; hits stand in fused order.",
                    {"model": answer.model_id},
                )
            )
            return report, None
        if not answer.complete:
            kind = "RERANK_PARTIAL" if scores else "RERANK_SKIPPED"
            notes.append(
                Note(
                    kind,
                    f"The reranker scored {len(scores)} of {len(head)} passages in its time.",
                    {"scored": str(len(scores)), "candidates": str(len(head))},
                )
            )
        return report, RerankResult({i: raw for i, (_, raw) in scores.items()})

    async def _late(
        self,
        asked: Sequence[ScopeQuery],
        head: Sequence[str],
        questions: Mapping[str, TokenVectors],
    ) -> tuple[RerankReport, RerankResult] | None:
        """Late interaction over stored token vectors, None where some passage has none."""
        stored: dict[str, TokenVectors] = {}
        wanted = {
            number: [i for n, i in map(candidates.parse, head) if n == number]
            for number in range(len(asked))
        }
        async with self._db.tenant() as conn:
            for number, one in enumerate(asked):
                if not wanted[number]:
                    continue
                question = questions.get(one.collection.model_id)
                if question is None or one.vector is None:
                    return None
                found = await items.token_vectors(
                    conn, one.scope.collection_id, one.collection.model_id, wanted[number]
                )
                if len(found) < len(wanted[number]) or any(
                    t.codec != question.codec for t in found.values()
                ):
                    return None
                stored.update({candidates.key(number, i): t for i, t in found.items()})
        loop = asyncio.get_running_loop()
        raws: dict[str, float] = {}
        for number, one in enumerate(asked):
            ids = [candidates.key(number, i) for i in wanted[number]]
            if ids:
                question = questions[one.collection.model_id]
                values = await loop.run_in_executor(
                    self._executor, max_sim, question, [stored[i] for i in ids]
                )
                raws.update(zip(ids, values, strict=True))
        models = ", ".join(dict.fromkeys(a.collection.model_id for a in asked))
        scores = {i: (min(1.0, max(0.0, raw)), raw) for i, raw in raws.items()}
        report = RerankReport(f"{models} (stored token vectors)", scores)
        return report, RerankResult(raws, absolute=True)
