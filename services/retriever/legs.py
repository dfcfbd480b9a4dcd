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


async def run(
    conn: Connection, tenant_id: str, spec: SearchSpec, asked: ScopeQuery, watch: Stopwatch
) -> ScopeResult:
    """Runs the legs of one scope and loads their candidates.

    More candidates are asked for while most of them are the same passage over and over.
    """
    among = None
    if not asked.scope.whole:
        with watch.measure("scope"):
            among = await hits.items_in(conn, asked.scope)
    scorer = None
    if asked.ram is None and asked.terms and spec.weight(Leg.LEXICAL) > 0.0:
        with watch.measure("lexical"):
            snap = await lexical.snapshot(conn, asked.scope.collection_id, asked.terms)
            scorer = _Scorer.of(snap, asked.terms, among)
    widen = 1
    while True:
        legs = await _recall(conn, tenant_id, spec, asked, scorer, among, widen, watch)
        pool = list(dict.fromkeys(i for f in legs.values() for i in f.scores))
        with watch.measure("fetch"):
            found = await hits.candidates(conn, asked.scope, pool) if pool else []
        candidates = {c.chunk.item: c for c in found}
        if not _crowded(legs, candidates, spec, widen) or widen * spec.recipe.leg_k >= _WIDEST:
            break
        widen *= 8
    if asked.needles and spec.weight(Leg.PHRASE) > 0.0:
        with watch.measure("phrase"):
            legs[Leg.PHRASE] = _phrase(asked.needles, legs, candidates, spec.depth(Leg.PHRASE))
    vectors: Mapping[int, Vector] = {}
    space = asked.collection.active
    wanted = spec.recipe.near_duplicate > 0.0 or spec.recipe.mmr_lambda < 1.0
    if wanted and space is not None and candidates:
        with watch.measure("fetch"):
            vectors = await items.vectors_of(
                conn, asked.scope.collection_id, space.model_id, list(candidates)
            )
    return ScopeResult(legs, candidates, vectors)


async def _recall(
    conn: Connection,
    tenant_id: str,
    spec: SearchSpec,
    asked: ScopeQuery,
    scorer: _Scorer | None,
    among: Sequence[int] | None,
    widen: int,
    watch: Stopwatch,
) -> dict[Leg, Found]:
    """The lexical and the dense leg, each with scores of the other's candidates."""
    legs: dict[Leg, Found] = {}
    if asked.ram is not None:
        legs[Leg.LEXICAL] = asked.ram
    elif scorer is not None:
        with watch.measure("lexical"):
            scores = scorer.best(widen * spec.depth(Leg.LEXICAL))
            legs[Leg.LEXICAL] = Found("postings", scores, weight=scorer.weight)
    space = asked.collection.active
    if asked.vector is not None and space is not None and spec.weight(Leg.DENSE) > 0.0:
        with watch.measure("dense"):
            if widen > 1:
                scores = await dense.exact_by_passage(
                    conn, asked.scope.collection_id, space.model_id, asked.vector,
                    spec.depth(Leg.DENSE), among,
                )  # fmt: skip
                legs[Leg.DENSE] = Found("exact", scores)
            else:
                legs[Leg.DENSE] = await _dense(conn, tenant_id, asked, space, spec, among)
            legs = await _with_extra(conn, asked, space, legs)
    if scorer is not None and Leg.LEXICAL in legs and Leg.DENSE in legs:
        with watch.measure("lexical"):
            legs[Leg.LEXICAL] = scorer.with_extra(legs[Leg.LEXICAL], legs[Leg.DENSE])
    return legs


def _crowded(
    legs: Mapping[Leg, Found],
    candidates: Mapping[int, Candidate],
    spec: SearchSpec,
    widen: int,
) -> bool:
    """True when a leg delivered all it could and most of that was one passage repeated."""
    for leg, found in legs.items():
        width = spec.depth(leg) * (1 if leg is Leg.DENSE else widen)
        if len(found.scores) < width or found.method == "ram":
            continue
        passages = {candidates[i].passage_hash for i in found.scores if i in candidates}
        if len(passages) * _FAMILY < spec.depth(leg):
            return leg is not Leg.DENSE or widen == 1
    return False


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
    pool = dict.fromkeys([*_best(legs.get(Leg.LEXICAL), _PHRASE_LEXICAL), *near])
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
