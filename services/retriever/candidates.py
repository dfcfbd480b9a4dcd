"""From what the legs found in each scope to what the engine works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from services.retriever.domain import InForce
from services.retriever.legs import Found, ScopeQuery, ScopeResult
from services.retriever.reading.blocks import Kind
from services.retriever.spec import SearchSpec
from services.search import Item, Leg, LegResult, LegState

_KIND_NAMES: Final = {
    Kind.PARAGRAPH: "paragraph",
    Kind.TITLE: "title",
    Kind.ABSTRACT: "abstract",
    Kind.TABLE: "table",
    Kind.CODE: "code",
    Kind.LIST: "paragraph",
    Kind.TEASER: "teaser",
    Kind.NOTE: "notes",
}


def key(scope: int, item: int) -> str:
    """The engine's id of an item of the scope with that number."""
    return f"{scope}:{item}"


def parse(hit_id: str) -> tuple[int, int]:
    """Inverse of `key`."""
    scope, _, item = hit_id.partition(":")
    return int(scope), int(item)


def merge(
    asked: Sequence[ScopeQuery],
    results: Sequence[ScopeResult],
    calibrations: Mapping[str, InForce],
    spec: SearchSpec,
) -> list[LegResult]:
    """One result a leg over all scopes, on the scale of the first scope that has it.

    BM25 counts in shares of a perfect match of its own collection, inner products by the anchors
    of their own model: what is found in different collections can then be compared.
    """
    first = calibrations[asked[0].collection.model_id]
    out: list[LegResult] = []
    for leg in Leg:
        if spec.weight(leg) <= 0.0:
            continue
        # An empty scope, perhaps the first, has no measure.
        weights = (r.legs[leg].weight for r in results if leg in r.legs)
        weight = next((w for w in weights if w > 0.0), 0.0)
        scores: dict[str, float] = {}
        extra: dict[str, float] = {}
        for number, (one, result) in enumerate(zip(asked, results, strict=True)):
            found = result.legs.get(leg)
            if found is None:
                continue
            own = calibrations[one.collection.model_id]
            for target, values in ((scores, found.scores), (extra, found.extra)):
                for item, score in values.items():
                    if item in result.candidates:
                        scaled = _scaled(leg, score, found, weight, own, first)
                        target[key(number, item)] = scaled
        if any(leg in r.legs for r in results):
            out.append(LegResult(leg, scores, extra, query_weight=weight))
        else:
            out.append(LegResult(leg, state=LegState.SKIPPED, reason="nothing to look for"))
    return out


def _scaled(
    leg: Leg, score: float, found: Found, weight: float, own: InForce, first: InForce
) -> float:
    if leg is Leg.LEXICAL:
        return score * weight / found.weight if found.weight > 0.0 and weight > 0.0 else score
    return own.onto(first, score) if leg is Leg.DENSE else score


def items(asked: Sequence[ScopeQuery], results: Sequence[ScopeResult]) -> dict[str, Item]:
    """All candidates as the engine knows them, by id."""
    out: dict[str, Item] = {}
    for number, (one, result) in enumerate(zip(asked, results, strict=True)):
        for item, candidate in result.candidates.items():
            chunk = candidate.chunk
            document = f"{number}:{chunk.document_id}"
            out[key(number, item)] = Item(
                id=key(number, item),
                # Whole: gate and dense weight read the language, length and words of the best.
                text=chunk.text,
                document_id=document,
                kind=_KIND_NAMES[Kind(chunk.kind)],
                content_hash=candidate.passage_hash.hex(),
                group=document,
                position=chunk.ordinal,
                vector=result.vectors.get(item),
                space=one.collection.model_id,
            )
    return out


def passage(results: Sequence[ScopeResult], hit_id: str) -> str:
    """What a reranker reads of a candidate: its section and its text."""
    number, item = parse(hit_id)
    chunk = results[number].candidates[item].chunk
    head = " > ".join(chunk.section)
    return f"{head}\n{chunk.text}" if head else chunk.text
