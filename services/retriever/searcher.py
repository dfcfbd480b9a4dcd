"""A search from question to hits: embed, run the legs, fuse, rerank, gate, explain."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from services.common import context, deadlines, errors
from services.common.db import Database
from services.common.errors import DomainError
from services.retriever import candidates
from services.retriever.calibrations import Calibrations
from services.retriever.domain import Collection, Scope, Space, TokenVectors, Vector
from services.retriever.embedding import Embedder
from services.retriever.indexing import indexed_passage
from services.retriever.legs import Found, Runner, ScopeQuery, ScopeResult, Stopwatch
from services.retriever.off_loop import off_loop
from services.retriever.reranking import Note, Reranker, RerankReport
from services.retriever.spec import SearchSpec
from services.retriever.store import collections, hits
from services.search import (
    Leg,
    LegResult,
    LegState,
    Ranking,
    engine,
    phrase,
    query_terms,
)
from services.search.bm25 import RamIndex
from services.search.cache import RamIndexCache
from services.search.calibration import Calibration

MAX_TERMS: Final = 4_000
_RAM_DOCUMENTS: Final = 1
_LONG_QUERY: Final = 2_000
# Fusing and judging more candidates than these would hold up every other call.
_MANY: Final = 1_000


@dataclass(frozen=True)
class Outcome:
    """A finished search, before text around the hits is loaded."""

    spec: SearchSpec
    ranking: Ranking
    scopes: Sequence[ScopeQuery]
    results: Sequence[ScopeResult]
    rerank: RerankReport
    fused_rank: Mapping[str, int]
    calibration: Calibration
    notes: Sequence[Note]
    watch: Stopwatch
    terms: Sequence[str]
    model_ids: Sequence[str]

    def of(self, hit_id: str) -> tuple[int, int]:
        """(scope number, item) of a candidate id."""
        return candidates.parse(hit_id)


class _Key(NamedTuple):
    """Names an index in memory."""

    tenant_id: str
    collection_id: str
    document_ids: tuple[str, ...]


@dataclass(frozen=True)
class _Questions:
    """The question's vectors by model, and the revisions that made them."""

    vectors: Mapping[str, Vector] = field(default_factory=dict)
    tokens: Mapping[str, TokenVectors] = field(default_factory=dict)
    revisions: Mapping[str, str] = field(default_factory=dict)


class Searcher:
    """Runs searches for the current caller's tenant."""

    def __init__(
        self,
        db: Database,
        embedder: Embedder,
        calibrations: Calibrations,
        executor: Executor,
        cache: RamIndexCache,
        *,
        embed_timeout_s: float,
    ) -> None:
        self._db = db
        self._embedder = embedder
        self._calibrations = calibrations
        self._executor = executor
        self._cache = cache
        self._legs = Runner(db, executor)
        self._reranker = Reranker(db, embedder, executor)
        self._embed_timeout_s = embed_timeout_s

    async def search(
        self, spec: SearchSpec, found: Mapping[str, Collection] | None = None
    ) -> Outcome:
        """Finds passages in `found`, the collections of its scopes, which are looked up if None.
        NOT_FOUND for an unknown collection, UNAVAILABLE when no leg works."""
        watch = Stopwatch()
        with watch.measure("total"):
            found = found or await self.collections(spec.scopes)
            notes: list[Note] = []
            questions = await self._embed(spec, found, notes, watch)
            # A pasted log is long: tokenising it takes as long as a search.
            long = len(spec.query) > _LONG_QUERY
            terms, needles = await off_loop(self._executor, long, _read, spec.query)
            asked = [
                await self._ask(spec, s, found[s.collection_id], questions, terms, needles, notes)
                for s in spec.scopes
            ]
            results = await self._run(spec, asked, watch)
            notes.extend(_pending_notes(asked))
            return await self._rank(spec, asked, results, questions, notes, watch)

    async def collections(self, scopes: Sequence[Scope]) -> dict[str, Collection]:
        """The collections of these scopes, by id; NOT_FOUND."""
        async with self._db.tenant() as conn:
            found = await collections.get_many(conn, [s.collection_id for s in scopes])
        for scope in scopes:
            if scope.collection_id not in found:
                raise errors.not_found("collection", scope.collection_id)
        return found

    def forget(self, collection_id: str, document_ids: Iterable[str] | None = None) -> None:
        """Drops what is in memory of documents of the caller's tenant (None: of the collection)
        that are gone, once that is committed."""
        tenant_id = context.current_caller().tenant_id

        def gone(key: Hashable) -> bool:
            return (
                isinstance(key, _Key)
                and (key.tenant_id, key.collection_id) == (tenant_id, collection_id)
                and (document_ids is None or not set(key.document_ids).isdisjoint(document_ids))
            )

        self._cache.drop(gone)

    async def _embed(
        self,
        spec: SearchSpec,
        found: Mapping[str, Collection],
        notes: list[Note],
        watch: Stopwatch,
    ) -> _Questions:
        """The question by every active model. A model that does not answer is noted."""
        models = sorted(
            {c.model_id for c in found.values() if c.active is not None and c.active.vectors > 0}
        )
        if spec.weight(Leg.DENSE) <= 0.0 or not any(c.isalnum() for c in spec.query):
            return _Questions()
        vectors: dict[str, Vector] = {}
        tokens: dict[str, TokenVectors] = {}
        revisions: dict[str, str] = {}
        with watch.measure("embed_query"):
            made = await asyncio.gather(*(self._question(m, spec) for m in models))
        for model_id, answer in zip(models, made, strict=True):
            if isinstance(answer, str):
                notes.append(
                    Note(
                        "DENSE_LEG_SKIPPED",
                        f"The question could not be embedded ({answer}); lexical legs answered.",
                        {"leg": "dense", "model": model_id, "reason": answer},
                    )
                )
                continue
            vectors[model_id], late, revisions[model_id] = answer
            if late is not None:
                tokens[model_id] = late
        return _Questions(vectors, tokens, revisions)

    async def _question(
        self, model_id: str, spec: SearchSpec
    ) -> tuple[Vector, TokenVectors | None, str] | str:
        """Vector, token vectors and revision of the question, or why there are none."""
        # Half of what is left at most: the other legs must still be able to answer.
        limit = min(self._embed_timeout_s, deadlines.timeout(60.0) / 2)
        try:
            async with asyncio.timeout(limit):
                batch = await self._embedder.query(
                    model_id, spec.query, tokens=spec.recipe.rerank and not spec.rerank_by_model
                )
        except TimeoutError:
            return "TIMEOUT"
        except DomainError as error:
            return error.reason
        item = batch.items[0] if batch.items else None
        if item is None or item.vector is None:
            return item.error.reason if item is not None and item.error else "MODEL_FAILED"
        return item.vector, item.tokens, batch.revision

    async def _ask(
        self,
        spec: SearchSpec,
        scope: Scope,
        collection: Collection,
        questions: _Questions,
        terms: Sequence[str],
        needles: phrase.Needles,
        notes: list[Note],
    ) -> ScopeQuery:
        vector = questions.vectors.get(collection.model_id)
        space = collection.active
        revision = questions.revisions.get(collection.model_id, "")
        if (
            vector is not None
            and space is not None
            and not space.made_by(revision, vector.shape[0])
        ):
            vector = None
            notes.append(_changed_note(collection, space, revision))
        ram = None
        if self._fits_ram(scope) and terms and spec.weight(Leg.LEXICAL) > 0.0:
            ram = await self._in_ram(spec, scope, collection)
        return ScopeQuery(scope, collection, terms, needles, vector, ram)

    @staticmethod
    def _fits_ram(scope: Scope) -> bool:
        return 1 <= len(scope.document_ids) <= _RAM_DOCUMENTS and not scope.conditions

    async def _in_ram(self, spec: SearchSpec, scope: Scope, collection: Collection) -> Found:
        """The lexical leg over one document, with that document's own statistics."""
        tenant_id = context.current_caller().tenant_id
        loop = asyncio.get_running_loop()

        async def texts() -> list[tuple[str, str]]:
            async with self._db.tenant(tenant_id) as conn:
                rows = await hits.passage_texts(conn, scope)
            return [
                (str(r.item), indexed_passage(r.title, r.document_id, r.section, r.text))
                for r in rows
            ]

        def load() -> RamIndex:
            return RamIndex.of_texts(asyncio.run_coroutine_threadsafe(texts(), loop).result(30.0))

        key = _Key(tenant_id, scope.collection_id, scope.document_ids)
        # Versions begin anew in a collection that was deleted and made again.
        state = (collection.create_time, collection.version)

        def search() -> LegResult:
            index = self._cache.get(key, state, load)
            return index.leg(spec.query, spec.depth(Leg.LEXICAL))

        leg = await loop.run_in_executor(self._executor, search)
        return Found("ram", {int(i): s for i, s in leg.scores.items()}, weight=leg.query_weight)

    async def _run(
        self, spec: SearchSpec, asked: Sequence[ScopeQuery], watch: Stopwatch
    ) -> list[ScopeResult]:
        results: list[ScopeResult] = []
        for one in asked:
            result = await self._legs.run(spec, one, watch)
            wanted = {i for f in result.legs.values() for i in f.scores}
            if len(result.candidates) < len(wanted) and one.ram is None:
                # A document was replaced between two statements: look again, once, so that
                # neither its old nor its new text is missing.
                result = await self._legs.run(spec, one, watch)
            results.append(result)
        return results

    async def _rank(
        self,
        spec: SearchSpec,
        asked: Sequence[ScopeQuery],
        results: Sequence[ScopeResult],
        questions: _Questions,
        notes: list[Note],
        watch: Stopwatch,
    ) -> Outcome:
        calibrations = await self._calibrations.of([a.collection.model_id for a in asked])
        reference = calibrations[asked[0].collection.model_id]
        if spec.weight(Leg.DENSE) > 0.0 and not reference.fitted:
            notes.append(
                Note(
                    "MODEL_UNHEALTHY",
                    "The model has no calibration: fusion and confidence use general anchors.",
                    {"model": reference.calibration.model_id, "missing": "calibration"},
                )
            )
        busy = len(spec.query) > _LONG_QUERY or sum(len(r.candidates) for r in results) > _MANY
        with watch.measure("fusion"):
            merged = candidates.merge(asked, results, calibrations, spec)
            pool = candidates.items(asked, results)
            fused = await off_loop(
                self._executor,
                busy,
                engine.fuse,
                spec.query,
                merged,
                pool,
                spec.recipe,
                reference.calibration,
            )
        if not any(r.state is LegState.OK for r in merged) and notes and asked[0].terms:
            raise errors.dependency_unavailable("embedder", detail="no leg could answer")
        report, reranked = RerankReport(), None
        if spec.recipe.rerank and fused.head:
            with watch.measure("rerank"):
                report, reranked = await self._reranker.run(
                    spec, asked, results, fused.head, questions.tokens, notes
                )
        with watch.measure("fusion"):
            ranking = await off_loop(self._executor, busy, engine.finish, fused, reranked)
        return Outcome(
            spec=spec,
            ranking=ranking,
            scopes=asked,
            results=results,
            rerank=report,
            fused_rank={i: n for n, i in enumerate(fused.order, 1)},
            calibration=reference.calibration,
            notes=notes,
            watch=watch,
            terms=asked[0].terms,
            model_ids=sorted(questions.vectors),
        )


def _read(query: str) -> tuple[list[str], phrase.Needles]:
    """What the lexical and the phrase leg look for."""
    return query_terms(query, MAX_TERMS), phrase.needles(query)


def _changed_note(collection: Collection, space: Space, revision: str) -> Note:
    return Note(
        "DENSE_LEG_SKIPPED",
        "The model is another one than that of the stored vectors; lexical legs answered.",
        {
            "leg": "dense",
            "model": space.model_id,
            "reason": "MODEL_CHANGED",
            "collection_id": collection.collection_id,
            "stored_revision": space.model_revision,
            "revision": revision,
        },
    )


def _pending_notes(asked: Sequence[ScopeQuery]) -> list[Note]:
    out = []
    for one in asked:
        space = one.collection.active
        missing = one.collection.item_count - (space.vectors if space else 0)
        if missing > 0:
            out.append(
                Note(
                    "VECTORS_PENDING",
                    f"{missing} passages have no vector yet and are found lexically only.",
                    {"collection_id": one.collection.collection_id, "pending": str(missing)},
                )
            )
    return out
