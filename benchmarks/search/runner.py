"""Runs the engine over a set as the services do: small scopes in memory, all legs, late rerank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.search.sets import LabelledSet, Query, Row
from benchmarks.search.vectors import Embedded, codec
from services.search import dense, engine, late, phrase, recipes
from services.search.bm25 import RamIndex
from services.search.calibration import DEFAULT_MODEL, Calibration, shipped
from services.search.recipes import Fusion, Recipe
from services.search.types import FloatArray, Item, Leg, LegResult, Ranking

K = 10


def shipped_calibration() -> Calibration:
    """The default model's."""
    found = shipped(DEFAULT_MODEL)
    if found is None:
        raise RuntimeError("the default model has no calibration")
    return found


@dataclass(frozen=True)
class Scope:
    """One searchable scope in memory."""

    ids: tuple[str, ...]
    index: RamIndex
    vectors: FloatArray
    items: dict[str, Item]
    haystacks: dict[str, str]
    row_of: dict[str, int]

    @classmethod
    def of(cls, rows: Sequence[Row], embedded: Embedded) -> Scope:
        ids = tuple(r.id for r in rows)
        return cls(
            ids=ids,
            index=RamIndex.of_texts([(r.id, r.text) for r in rows]),
            vectors=embedded.dense[[r.row for r in rows]],
            items={
                r.id: Item(
                    id=r.id, text=r.text, group=r.group, position=r.position,
                    tokens=embedded.packed(r.row),
                )
                for r in rows
            },
            haystacks={r.id: phrase.searchable(r.text) for r in rows},
            row_of={r.id: n for n, r in enumerate(rows)},
        )  # fmt: skip


class Runner:
    """A set with its indexes; `legs` once per query, then any number of recipes over them."""

    def __init__(self, one: LabelledSet, queries: Embedded, documents: Embedded) -> None:
        self.set = one
        self._queries = queries
        self._scopes = {s: Scope.of(rows, documents) for s, rows in one.scopes().items()}
        self._codec = codec()
        self.calibration = shipped_calibration()
        self.recipe = replace(recipes.recipe(one.info.recipe), top_k=K)

    def legs(self, query: Query, scope: Scope, vectors: Embedded) -> list[LegResult]:
        """All three legs of a question over one scope, each with scores of the others' hits."""
        k = self.recipe.leg_k
        vector = vectors.dense[query.row]
        semantic = dense.leg(vector, scope.ids, scope.vectors, k)
        lexical = scope.index.leg(query.text, k, extra=semantic.scores)
        missing = [i for i in lexical.scores if i not in semantic.scores]
        extra = dense.scores_of(vector, {i: scope.vectors[scope.row_of[i]] for i in missing})
        semantic = replace(semantic, extra=extra)
        pool = engine.pool([semantic, lexical])
        exact = phrase.leg(query.text, {i: scope.haystacks[i] for i in pool}, k)
        return [semantic, lexical, exact]

    def rank(self, query: Query, recipe: Recipe, legs: Sequence[LegResult], scope: Scope,
             vectors: Embedded) -> Ranking:  # fmt: skip
        """The recipe's answer, late interaction included where the recipe reranks."""
        fused = engine.fuse(query.text, legs, scope.items, recipe, self.calibration)
        if not recipe.rerank:
            return engine.finish(fused)
        question = vectors.question(query.row, self._codec.dimensions)
        packed = {i: scope.items[i].tokens or b"" for i in fused.head}
        return engine.finish(fused, late.rerank(self._codec, question, packed))

    def scope(self, query: Query) -> Scope:
        """Where the query belongs."""
        return self._scopes[query.scope]

    def rankings(self, query: Query) -> dict[str, list[str]]:
        """Ids by method: bm25, dense, rrf and the shipped recipe (ungated: order is judged)."""
        scope = self.scope(query)
        legs = self.legs(query, scope, self._queries)
        by_leg = {r.leg: r.ranked()[:K] for r in legs}
        plain = replace(
            self.recipe, fusion=Fusion.RRF, rerank=False, gate=False, quality=False,
            weights={Leg.DENSE: 1.0, Leg.LEXICAL: 1.0}, propagation=recipes.Propagation(),
        )  # fmt: skip
        ungated = replace(self.recipe, gate=False)
        rrf = self.rank(query, plain, legs, scope, self._queries)
        shipped_order = self.rank(query, ungated, legs, scope, self._queries)
        return {
            "bm25": by_leg.get(Leg.LEXICAL, []),
            "dense": by_leg.get(Leg.DENSE, []),
            "rrf": [h.id for h in rrf.hits],
            "nianlun": [h.id for h in shipped_order.hits],
        }

    def sample(self, part: str, most: int) -> list[Query]:
        """At most `most` queries of a part (0 = all), evenly spread over the file."""
        asked = [q for q in self.set.queries if q.part == part]
        if not most or len(asked) <= most:
            return asked
        return [asked[int(n * len(asked) / most)] for n in range(most)]

    def first_scope(self) -> Scope:
        """Some scope of the set, for questions that belong elsewhere."""
        return next(iter(self._scopes.values()))

    def judge(self, query: Query, where: Runner) -> Ranking:
        """The gated answer to this set's question at home or in another set's first scope."""
        scope = self.scope(query) if where is self else where.first_scope()
        recipe = replace(self.recipe, gate=True)
        legs = self.legs(query, scope, self._queries)
        return self.rank(query, recipe, legs, scope, self._queries)
