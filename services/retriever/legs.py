"""The legs over one scope, inside one short transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.common.db import Connection
from services.retriever.domain import Collection, Scope, Space, Vector
from services.retriever.spec import SearchSpec
from services.retriever.store import dense, hits, items, lexical
from services.retriever.store.hits import Candidate
from services.search import Leg, bm25, phrase, postings

_WIDEST: Final = 20_000
_EXTRA_POSTINGS: Final = 300_000
_PHRASE_DENSE: Final = 30
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


async def run(
    conn: Connection, tenant_id: str, spec: SearchSpec, asked: ScopeQuery, watch: Stopwatch
) -> ScopeResult:
    """Runs the legs of one scope and loads their candidates."""
    among = None
    if not asked.scope.whole:
        with watch.measure("scope"):
            among = await hits.items_in(conn, asked.scope)
    legs: dict[Leg, Found] = {}
    depth = spec.depth(Leg.LEXICAL)
    snapshot = None
    if asked.ram is not None:
        legs[Leg.LEXICAL] = asked.ram
    elif asked.terms and spec.weight(Leg.LEXICAL) > 0.0:
        with watch.measure("lexical"):
            snapshot = _Scorer.of(await _snapshot(conn, asked), asked.terms, among)
            legs[Leg.LEXICAL] = await _distinct(conn, asked, snapshot, depth)
    space = asked.collection.active
    if asked.vector is not None and space is not None and spec.weight(Leg.DENSE) > 0.0:
        with watch.measure("dense"):
            legs[Leg.DENSE] = await _dense(conn, tenant_id, asked, space, spec, among)
            legs = await _with_extra(conn, asked, space, legs)
    if snapshot is not None and Leg.DENSE in legs:
        with watch.measure("lexical"):
            legs[Leg.LEXICAL] = snapshot.with_extra(legs[Leg.LEXICAL], legs[Leg.DENSE])
    pool = list(dict.fromkeys(i for f in legs.values() for i in f.scores))
    with watch.measure("fetch"):
        found = await hits.candidates(conn, asked.scope, pool) if pool else []
    candidates = {c.chunk.item: c for c in found}
    if asked.needles and spec.weight(Leg.PHRASE) > 0.0:
        with watch.measure("phrase"):
            legs[Leg.PHRASE] = _phrase(asked.needles, legs, candidates, spec.depth(Leg.PHRASE))
    vectors: Mapping[int, Vector] = {}
    wanted = spec.recipe.near_duplicate > 0.0 or spec.recipe.mmr_lambda < 1.0
    if wanted and space is not None and candidates:
        with watch.measure("fetch"):
            vectors = await items.vectors_of(
                conn, asked.scope.collection_id, space.model_id, list(candidates)
            )
    return ScopeResult(legs, candidates, vectors)


async def _snapshot(conn: Connection, asked: ScopeQuery) -> lexical.Snapshot:
    return await lexical.snapshot(conn, asked.scope.collection_id, asked.terms)


@dataclass(frozen=True)
class _Scorer:
    """One query's postings, ready to be scored."""

    terms: tuple[postings.TermPostings, ...]
    documents: int
    length: int
    weight: float
    entries: int
    dead: NDArray[np.uint32]
    among: NDArray[np.uint32] | None

    @classmethod
    def of(
        cls, snap: lexical.Snapshot, terms: Sequence[str], among: Sequence[int] | None
    ) -> _Scorer:
        dead = np.asarray(snap.dead, np.uint32)
        prepared: list[postings.TermPostings] = []
        frequencies: list[int] = []
        entries = 0
        for term in terms:
            parts = [postings.unpack(p) for p in snap.postings.get(term, ())]
            frequency = sum(map(len, parts))
            entries += frequency
            if len(dead):
                frequency -= sum(int(np.isin(p.items, dead).sum()) for p in parts)
            frequencies.append(frequency)
            if frequency:
                prepared.append(postings.TermPostings(frequency, parts))
        return cls(
            terms=tuple(prepared),
            documents=snap.documents,
            length=snap.total_length,
            weight=bm25.query_weight(frequencies, snap.documents) if snap.documents else 0.0,
            entries=entries,
            dead=dead,
            among=None if among is None else np.asarray(sorted(among), np.uint32),
        )

    def best(self, k: int) -> dict[int, float]:
        """The best `k` items of the scope: item -> BM25."""
        return self._score(k, self.among)

    def with_extra(self, lexical_leg: Found, dense_leg: Found) -> Found:
        """The leg with BM25 of the dense leg's candidates too, where that costs little."""
        missing = [i for i in dense_leg.scores if i not in lexical_leg.scores]
        if not missing or self.entries > _EXTRA_POSTINGS:
            return lexical_leg
        extra = self._score(len(missing), np.asarray(sorted(missing), np.uint32))
        return Found(lexical_leg.method, lexical_leg.scores, extra, lexical_leg.weight)

    def _score(self, k: int, among: NDArray[np.uint32] | None) -> dict[int, float]:
        found, scores = postings.score_postings(
            self.terms, self.documents, self.length, k, self.dead, among
        )
        return dict(zip(found.tolist(), scores.tolist(), strict=True))


async def _distinct(conn: Connection, asked: ScopeQuery, scorer: _Scorer, depth: int) -> Found:
    """The best items; more of them while they are mostly the same passage over and over."""
    scores = scorer.best(depth)
    width = depth
    while len(scores) == width and width < _WIDEST:
        families = await hits.passages(conn, asked.scope.collection_id, list(scores))
        if families * _FAMILY >= depth:
            break
        width *= 8
        scores = scorer.best(width)
    return Found("postings", scores, weight=scorer.weight)


async def _dense(
    conn: Connection,
    tenant_id: str,
    asked: ScopeQuery,
    space: Space,
    spec: SearchSpec,
    among: Sequence[int] | None,
) -> Found:
    """The nearest items: by HNSW where the space has an index and the scope is the collection."""
    collection_id, model_id, vector = asked.scope.collection_id, space.model_id, asked.vector
    if vector is None:
        raise ValueError("the dense leg needs a vector")
    depth = spec.depth(Leg.DENSE)
    method = "exact"
    if space.index_name and space.ef_search and among is None:
        scores = await dense.hnsw(
            conn, tenant_id, collection_id, model_id, space.dimensions, vector, depth,
            space.ef_search,
        )  # fmt: skip
        method = "hnsw"
        if len(scores) < min(depth, space.vectors):
            # Too few rows: the guard of an index that lost its way among deleted entries.
            scores = await dense.exact(conn, collection_id, model_id, vector, depth)
            method = "hnsw_then_exact"
    else:
        scores = await dense.exact(conn, collection_id, model_id, vector, depth, among)
    if len(scores) == depth:
        families = await hits.passages(conn, collection_id, list(scores))
        if families * _FAMILY < depth:
            scores = await dense.exact_by_passage(
                conn, collection_id, model_id, vector, depth, among
            )
            method = "exact"
    return Found(method, scores)


async def _with_extra(
    conn: Connection, asked: ScopeQuery, space: Space, legs: Mapping[Leg, Found]
) -> dict[Leg, Found]:
    """The legs with exact inner products of the lexical candidates that dense did not recall."""
    found = legs[Leg.DENSE]
    others = legs.get(Leg.LEXICAL)
    missing = [i for i in others.scores if i not in found.scores] if others else []
    if not missing or asked.vector is None:
        return dict(legs)
    extra = await dense.scores_of(
        conn, asked.scope.collection_id, space.model_id, asked.vector, missing
    )
    return {**legs, Leg.DENSE: Found(found.method, found.scores, extra)}


def _phrase(
    needles: phrase.Needles,
    legs: Mapping[Leg, Found],
    candidates: Mapping[int, Candidate],
    depth: int,
) -> Found:
    """Phrases and identifiers among the other legs' candidates: their words are in the postings."""
    near = _best(legs.get(Leg.DENSE), _PHRASE_DENSE)
    pool = dict.fromkeys([*_best(legs.get(Leg.LEXICAL), 2 * depth), *near])
    scores: dict[int, float] = {}
    for item in pool:
        candidate = candidates.get(item)
        if candidate is None:
            continue
        score = phrase.score(needles, phrase.searchable(candidate.chunk.text))
        if score > 0.0:
            scores[item] = score
    best = sorted(scores, key=lambda i: (-scores[i], i))[:depth]
    return Found("candidates", {i: scores[i] for i in best})


def _best(found: Found | None, k: int) -> list[int]:
    if found is None:
        return []
    return sorted(found.scores, key=lambda i: (-found.scores[i], i))[:k]
