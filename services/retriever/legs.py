"""The legs over one scope: what they find, with the scores of each other's candidates."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from services.common import context
from services.common.db import Connection, Database
from services.retriever.domain import Collection, Scope, Vector
from services.retriever.off_loop import off_loop
from services.retriever.spec import SearchSpec
from services.retriever.store import dense, hits, items, lexical
from services.retriever.store.hits import Candidate
from services.search import Leg, bm25, phrase, postings

_WIDEST: Final = 20_000
# Work beyond these sizes takes more than about a millisecond.
_BUSY_ENTRIES: Final = 100_000
_BUSY_CHARS: Final = 15_000
_PHRASE_LEXICAL: Final = 60
_PHRASE_DENSE: Final = 15
_FAMILY: Final = 4


@dataclass
class Stopwatch:
    """Milliseconds per step."""

    steps: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        """Adds the time of the block to `step`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = (time.perf_counter() - start) * 1000
            self.steps[step] = self.steps.get(step, 0.0) + spent


@dataclass(frozen=True)
class Found:
    """What one leg found in one scope: item -> raw score.

    `extra`: scores of other legs' candidates. `weight`: BM25 of a perfect match.
    """

    method: str
    scores: Mapping[int, float]
    extra: Mapping[int, float] = field(default_factory=dict)
    weight: float = 0.0


@dataclass(frozen=True)
class ScopeResult:
    """All legs of one scope, and the candidates that stand there."""

    legs: Mapping[Leg, Found]
    candidates: Mapping[int, Candidate]
    vectors: Mapping[int, Vector]


@dataclass(frozen=True)
class ScopeQuery:
    """One scope of a search with all that is known before the transaction.

    `vector` None: no dense leg. `ram`: the lexical leg, where an index in memory did it.
    """

    scope: Scope
    collection: Collection
    terms: Sequence[str]
    needles: phrase.Needles
    vector: Vector | None
    ram: Found | None = None


@dataclass(frozen=True)
class Runner:
    """Runs the legs of one scope. Connections are held for statements alone: scoring and judging
    happen between two short transactions, in `executor` where they would keep the loop busy."""

    db: Database
    executor: Executor

    async def run(self, spec: SearchSpec, asked: ScopeQuery, watch: Stopwatch) -> ScopeResult:
        """The legs of one scope with their candidates. More of them are asked for while most are
        the same passage over and over."""
        widen = 1
        snap: lexical.Snapshot | None = None
        among: list[int] | None = None
        while True:
            async with self.db.tenant() as conn:
                if widen == 1:
                    among, snap = await _prepare(conn, spec, asked, watch)
                semantic = await _dense(conn, spec, asked, among, widen, watch)
            legs: dict[Leg, Found] = {}
            if asked.ram is not None:
                legs[Leg.LEXICAL] = asked.ram
            elif snap is not None:
                others = list(semantic.scores) if semantic is not None else []
                depth = _width(spec, Leg.LEXICAL, widen)
                with watch.measure("lexical"):
                    legs[Leg.LEXICAL] = await off_loop(
                        self.executor,
                        snap.entries > _BUSY_ENTRIES,
                        _lexical,
                        snap,
                        asked,
                        among,
                        depth,
                        others,
                    )
            if semantic is not None:
                legs[Leg.DENSE] = semantic
            async with self.db.tenant() as conn:
                legs = await _with_extra(conn, asked, legs, watch)
                candidates, vectors = await _candidates(conn, spec, asked, legs, watch)
            crowded = _crowded(legs, candidates, spec, widen)
            if not crowded or _width(spec, Leg.LEXICAL, widen) >= _WIDEST:
                break
            widen *= 8
        if asked.needles and spec.weight(Leg.PHRASE) > 0.0:
            with watch.measure("phrase"):
                legs[Leg.PHRASE] = await self._phrase(spec, asked, legs, candidates)
        return ScopeResult(legs, candidates, vectors)

    async def _phrase(
        self,
        spec: SearchSpec,
        asked: ScopeQuery,
        legs: Mapping[Leg, Found],
        candidates: Mapping[int, Candidate],
    ) -> Found:
        near = _best(legs.get(Leg.DENSE), _PHRASE_DENSE)
        pool = dict.fromkeys([*_best(legs.get(Leg.LEXICAL), _PHRASE_LEXICAL), *near])
        texts = {i: candidates[i].chunk.text for i in pool if i in candidates}
        size = sum(map(len, texts.values()))
        return await off_loop(
            self.executor, size > _BUSY_CHARS, _judge, asked.needles, texts, spec.depth(Leg.PHRASE)
        )


async def _prepare(
    conn: Connection, spec: SearchSpec, asked: ScopeQuery, watch: Stopwatch
) -> tuple[list[int] | None, lexical.Snapshot | None]:
    """The items of a narrowed scope, and the postings of the question."""
    among = None
    if not asked.scope.whole:
        with watch.measure("scope"):
            among = await hits.items_in(conn, asked.scope)
    if asked.ram is not None or not asked.terms or spec.weight(Leg.LEXICAL) <= 0.0:
        return among, None
    with watch.measure("lexical"):
        return among, await lexical.snapshot(conn, asked.scope.collection_id, asked.terms)


async def _candidates(
    conn: Connection,
    spec: SearchSpec,
    asked: ScopeQuery,
    legs: Mapping[Leg, Found],
    watch: Stopwatch,
) -> tuple[dict[int, Candidate], Mapping[int, Vector]]:
    """What the legs found that still stands in the scope, and its vectors where they are needed."""
    pool = list(dict.fromkeys(i for f in legs.values() for i in f.scores))
    space = asked.collection.active
    wanted = spec.recipe.near_duplicate > 0.0 or spec.recipe.mmr_lambda < 1.0
    vectors: Mapping[int, Vector] = {}
    if not pool:
        return {}, vectors
    with watch.measure("fetch"):
        found = {c.chunk.item: c for c in await hits.candidates(conn, asked.scope, pool)}
        if wanted and space is not None and found:
            vectors = await items.vectors_of(
                conn, asked.scope.collection_id, space.model_id, list(found)
            )
    return found, vectors


def _width(spec: SearchSpec, leg: Leg, widen: int) -> int:
    """How many candidates a leg is asked for, widened: at most `_WIDEST`, whatever its depth."""
    depth = spec.depth(leg)
    return max(depth, min(widen * depth, _WIDEST))


def _crowded(
    legs: Mapping[Leg, Found],
    candidates: Mapping[int, Candidate],
    spec: SearchSpec,
    widen: int,
) -> bool:
    """True when a leg delivered all it could and most of that was one passage repeated."""
    for leg, found in legs.items():
        width = _width(spec, leg, 1 if leg is Leg.DENSE else widen)
        if len(found.scores) < width or found.method == "ram":
            continue
        passages = {candidates[i].passage_hash for i in found.scores if i in candidates}
        if len(passages) * _FAMILY < spec.depth(leg):
            return leg is not Leg.DENSE or widen == 1
    return False


def _lexical(
    snap: lexical.Snapshot,
    asked: ScopeQuery,
    among: Sequence[int] | None,
    k: int,
    others: Sequence[int],
) -> Found:
    """The best `k` items of the scope by BM25, with that of `others` too. Blocking."""
    dead = np.asarray(sorted(snap.dead), np.uint32)
    terms: list[postings.TermPostings] = []
    frequencies: list[int] = []
    for term in asked.terms:
        parts = [postings.unpack(p) for p in snap.postings.get(term, ())]
        gone = sum(postings.common(p.items, dead) for p in parts)
        frequency = sum(map(len, parts)) - gone
        frequencies.append(snap.unread.get(term, frequency))
        if frequency:
            terms.append(postings.TermPostings(frequency, parts))
    allowed = None if among is None else np.asarray(among, np.uint32)
    query = postings.Query.of(terms, snap.documents, snap.total_length, dead, allowed)
    found, values = query.best(k)
    scores = dict(zip(found.tolist(), values.tolist(), strict=True))
    extra = query.scores_of([i for i in others if i not in scores])
    weight = bm25.query_weight(frequencies, snap.documents) if snap.documents else 0.0
    return Found("postings", scores, extra, weight)


async def _dense(
    conn: Connection,
    spec: SearchSpec,
    asked: ScopeQuery,
    among: Sequence[int] | None,
    widen: int,
    watch: Stopwatch,
) -> Found | None:
    """The nearest items: by HNSW where the space has an index and the scope is the collection.
    None where there is nothing to compare."""
    collection_id, space, vector = asked.scope.collection_id, asked.collection.active, asked.vector
    if vector is None or space is None or spec.weight(Leg.DENSE) <= 0.0:
        return None
    depth, model_id = spec.depth(Leg.DENSE), space.model_id
    with watch.measure("dense"):
        if widen > 1:
            scores = await dense.exact_by_passage(
                conn, collection_id, model_id, vector, depth, among
            )
            return Found("exact", scores)
        if among is not None or not space.index_name or not space.ef_search:
            scores = await dense.exact(conn, collection_id, model_id, vector, depth, among)
            return Found("exact", scores)
        tenant_id = context.current_caller().tenant_id
        scores = await dense.hnsw(
            conn, tenant_id, collection_id, model_id, space.dimensions, vector, depth,
            space.ef_search,
        )  # fmt: skip
        if len(scores) >= min(depth, space.vectors):
            return Found("hnsw", scores)
        # Too few rows: the guard of an index that lost its way among deleted entries.
        scores = await dense.exact(conn, collection_id, model_id, vector, depth)
        return Found("hnsw_then_exact", scores)


async def _with_extra(
    conn: Connection, asked: ScopeQuery, legs: Mapping[Leg, Found], watch: Stopwatch
) -> dict[Leg, Found]:
    """The legs with exact inner products of the lexical candidates that dense did not recall."""
    found, others, space = legs.get(Leg.DENSE), legs.get(Leg.LEXICAL), asked.collection.active
    if found is None or others is None or space is None or asked.vector is None:
        return dict(legs)
    missing = [i for i in others.scores if i not in found.scores]
    if not missing:
        return dict(legs)
    with watch.measure("dense"):
        extra = await dense.scores_of(
            conn, asked.scope.collection_id, space.model_id, asked.vector, missing
        )
    return {**legs, Leg.DENSE: Found(found.method, found.scores, extra)}


def _judge(needles: phrase.Needles, texts: Mapping[int, str], depth: int) -> Found:
    """Phrases and identifiers among the other legs' candidates: their words are in the postings."""
    scores: dict[int, float] = {}
    for item, text in texts.items():
        score = phrase.score(needles, phrase.searchable(text))
        if score > 0.0:
            scores[item] = score
    best = sorted(scores, key=lambda i: (-scores[i], i))[:depth]
    return Found("candidates", {i: scores[i] for i in best})


def _best(found: Found | None, k: int) -> list[int]:
    if found is None:
        return []
    return sorted(found.scores, key=lambda i: (-found.scores[i], i))[:k]
