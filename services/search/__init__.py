"""Nianlun's hybrid search engine: a pure library over candidates ("one engine, two tanks").

No gRPC, no SQL, no clock, no model. The retriever and the memory service run the legs over their
own tables and hand the results over. One search:

    recipe  = recipes.recipe("knowledge")                        # or recipes.customise(base, {...})
    legs    = [LegResult(Leg.DENSE, scores={id: ip}, extra={...}, background=(mean, std)),
               LegResult(Leg.LEXICAL, scores={id: bm25}, query_weight=...),   # bm25.py
               LegResult(Leg.PHRASE, scores={id: 0..1})]                      # phrase.py
    ids     = engine.pool(legs)                                  # load an Item for each of them
    fused   = engine.fuse(query, legs, items, recipe, calibration)  # items: id -> Item
    rerank  = late.rerank(query_tokens, {id: packed for id in fused.head})  # late interaction,
                                                                 # or the embedder's Rerank, or None
    ranking = engine.finish(fused, rerank, now=now)

or `engine.search(...)` for both halves. `calibration.shipped(model_id)` or one read back with
`Calibration.from_json`. A leg that failed is passed as
`LegResult(leg, state=LegState.FAILED, reason=...)` and comes out as a degradation.

What a store does for the legs:

- lexical, small scope: `cache.RamIndexCache.get(scope, version, load)` -> `RamIndex.leg(query, k)`;
- lexical, large scope: keep per (scope, term, segment) `postings.pack(items, tfs, lengths)`, per
  scope the number of items and the sum of lengths, per term its document frequency; then
  `postings.Query.of(...)` and `bm25.query_weight(...)`;
- dense: inner products in SQL, or `dense.top_k`; `extra` = exact inner products of the other
  legs' candidates (`dense.scores_of`), `background` where all rows were seen;
- phrase: `phrase.needles(query)` gives what to look for, `phrase.score(query, text)` judges.

Every vote, rank and factor of a hit is in `types.Hit`.
"""

from services.search.tok import TOK_VERSION, query_terms, tokenize
from services.search.types import (
    Confidence,
    Degradation,
    DegradationCode,
    Hit,
    Item,
    Leg,
    LegResult,
    LegState,
    LegVote,
    Ranking,
    RerankResult,
)

__all__ = [
    "TOK_VERSION",
    "Confidence",
    "Degradation",
    "DegradationCode",
    "Hit",
    "Item",
    "Leg",
    "LegResult",
    "LegState",
    "LegVote",
    "Ranking",
    "RerankResult",
    "query_terms",
    "tokenize",
]
