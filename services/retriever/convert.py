"""Values into responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from datetime import datetime
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from services.common import validate
from services.common.status import item_error
from services.retriever.domain import Collection, Document, InForce, Metadata, Space, StoredChunk
from services.retriever.hit_context import Around
from services.retriever.legs import Found
from services.retriever.reranking import Note
from services.retriever.searcher import Outcome
from services.retriever.spec import NEAR_DUPLICATE
from services.retriever.store.hits import Place
from services.search import Confidence, DegradationCode, Hit, Leg
from services.search.recipes import Fusion, Recipe

MAX_SOURCES: Final = 20
SOURCE: Final = "retriever"
_SPACES: Final = {
    "active": pb.SPACE_STATE_ACTIVE,
    "building": pb.SPACE_STATE_BUILDING,
    "ready": pb.SPACE_STATE_READY,
}
_STATES: Final = {
    "pending": pb.DOCUMENT_STATE_PENDING,
    "ready": pb.DOCUMENT_STATE_READY,
    "failed": pb.DOCUMENT_STATE_FAILED,
}
STATE_NAMES: Final[Mapping[int, str]] = {n: name for name, n in _STATES.items()}
_LEGS: Final = {
    Leg.DENSE: pb.LEG_DENSE,
    Leg.LEXICAL: pb.LEG_LEXICAL,
    Leg.PHRASE: pb.LEG_PHRASE,
}
_FUSIONS: Final = {
    Fusion.CALIBRATED: pb.FUSION_KIND_CALIBRATED,
    Fusion.RRF: pb.FUSION_KIND_RRF,
    Fusion.MINMAX_MAX: pb.FUSION_KIND_MIN_MAX_MAX,
}
_CONFIDENCE: Final = {
    Confidence.NONE: pb.CONFIDENCE_NONE,
    Confidence.LOW: pb.CONFIDENCE_LOW,
    Confidence.MEDIUM: pb.CONFIDENCE_MEDIUM,
    Confidence.HIGH: pb.CONFIDENCE_HIGH,
}
_RECIPE_TEXTS: Final = {
    "knowledge": "Questions to collections of documents.",
    "conversation": "Turns of a conversation; neighbours and session lend each other weight.",
    "document": "Questions within given documents; nothing is held back.",
    "exact": "Words, phrases and identifiers as they stand; no vectors, no reranking.",
}


def stamp(instant: datetime) -> Timestamp:
    """An instant as a Timestamp."""
    out = Timestamp()
    out.FromDatetime(instant)
    return out


def collection(value: Collection) -> pb.Collection:
    """A collection."""
    return pb.Collection(
        collection_id=value.collection_id,
        display_name=value.display_name,
        description=value.description,
        default_recipe=value.default_recipe,
        model_id=value.model_id,
        spaces=[_space(s, value.item_count) for s in value.spaces],
        document_count=value.document_count,
        chunk_count=value.chunk_count,
        version=value.version,
        etag=value.etag,
        create_time=stamp(value.create_time),
        update_time=stamp(value.update_time),
        tokenizer=value.tokenizer,
    )


def _space(value: Space, items: int) -> pb.EmbeddingSpace:
    return pb.EmbeddingSpace(
        model_id=value.model_id,
        model_revision=value.model_revision,
        dimensions=value.dimensions,
        state=_SPACES[value.state],
        vectors=value.vectors,
        pending=max(0, items - value.vectors),
        index=pb.DENSE_INDEX_HNSW if value.index_name else pb.DENSE_INDEX_EXACT,
    )


def fill_metadata(target: MutableMapping[str, common_pb2.Value], metadata: Metadata) -> None:
    """Puts metadata into a message's map."""
    for key, value in validate.value_map_message(metadata).items():
        # Message maps take no assignment; reading creates the entry.
        target[key].CopyFrom(value)


def document(value: Document) -> pb.Document:
    """A document without its text."""
    out = pb.Document(
        collection_id=value.collection_id,
        document_id=value.document_id,
        title=value.title,
        content_type=pb.ContentType.ValueType(value.format),
        uri=value.uri,
        state=_STATES[value.state],
        content_hash=value.content_hash.hex(),
        text_chars=value.text_chars,
        chunk_count=value.chunk_count,
        pending_vectors=value.pending_vectors,
        revision=value.revision,
        sanitizations=[_sanitization(c) for c in value.changes],
        create_time=stamp(value.create_time),
        update_time=stamp(value.update_time),
    )
    fill_metadata(out.metadata, value.metadata)
    if value.state == "failed" and value.error_reason:
        out.error.CopyFrom(item_error(value.error_reason, value.error_message or ""))
    return out


def _sanitization(stored: Mapping[str, object]) -> common_pb2.Sanitization:
    changes = stored.get("changes")
    names = [str(c) for c in changes] if isinstance(changes, list) else []
    return common_pb2.Sanitization(field=str(stored.get("field", "")), changes=names)


def chunk(value: StoredChunk) -> pb.Chunk:
    """A passage."""
    return pb.Chunk(
        chunk_id=value.chunk_id,
        ordinal=value.ordinal,
        kind=pb.ChunkKind.ValueType(value.kind),
        section_path=value.section,
        text=value.text,
        start_char=value.start_char,
        end_char=value.end_char,
        page=value.page,
    )


# ---- search ------------------------------------------------------------------------------------


def degradation(note: Note) -> common_pb2.Degradation:
    """Something that was skipped or replaced."""
    return common_pb2.Degradation(
        kind=common_pb2.DegradationKind.Value(f"DEGRADATION_KIND_{note.kind}"),
        source=SOURCE,
        message=note.message[:500],
        metadata=note.metadata,
    )


def engine_notes(outcome: Outcome) -> Iterable[Note]:
    """The engine's degradations that the search has not reported itself."""
    for one in outcome.ranking.degradations:
        if one.code is DegradationCode.LEG_FAILED:
            kind = f"{one.subject.upper()}_LEG_SKIPPED"
            yield Note(kind, one.reason or "The leg failed.", {"leg": one.subject})


def response(
    outcome: Outcome, places: Mapping[str, Sequence[Place]], around: Mapping[str, Around]
) -> pb.SearchResponse:
    """A finished search. `places`: where each hit's text stands; `around`: the text beside it."""
    ranking = outcome.ranking
    out = pb.SearchResponse(
        hits=[
            _hit(outcome, h, places.get(h.id, ()), around.get(h.id))
            for h in ranking.hits
            if places.get(h.id)
        ],
        confidence=_CONFIDENCE[ranking.confidence],
        confidence_score=ranking.relevance,
        held_back=ranking.held_back,
        degradations=[degradation(n) for n in (*outcome.notes, *engine_notes(outcome))],
        timings=[
            common_pb2.StepTiming(step=step, ms=ms) for step, ms in outcome.watch.steps.items()
        ],
    )
    if outcome.spec.explain:
        out.explanation.CopyFrom(_explanation(outcome))
    return out


def _hit(outcome: Outcome, hit: Hit, places: Sequence[Place], around: Around | None) -> pb.Hit:
    number, item = outcome.of(hit.id)
    shown = outcome.results[number].candidates[item].chunk
    own = next((p for p in places if p.chunk_id == shown.chunk_id), places[0])
    others = [p for p in places if p is not own]
    out = pb.Hit(
        collection_id=own.collection_id,
        document_id=own.document_id,
        title=own.title,
        uri=own.uri,
        chunk=chunk(shown),
        score=hit.score,
        other_sources=[_source(p) for p in others[:MAX_SOURCES]],
        other_source_count=sum({p.item_key: p.places for p in places}.values()) - 1,
    )
    fill_metadata(out.metadata, own.metadata)
    if outcome.spec.explain:
        out.explanation.CopyFrom(_hit_explanation(outcome, hit))
    if around is not None:
        out.neighbours.extend(chunk(c) for c in around.neighbours)
        out.parent_text = around.parent_text
    return out


def _source(place: Place) -> pb.HitSource:
    out = pb.HitSource(
        collection_id=place.collection_id,
        document_id=place.document_id,
        chunk_id=place.chunk_id,
        title=place.title,
        uri=place.uri,
    )
    fill_metadata(out.metadata, place.metadata)
    return out


def _hit_explanation(outcome: Outcome, hit: Hit) -> pb.HitExplanation:
    weights = outcome.ranking.leg_weights
    total = sum(weights.values()) or 1.0
    number, item = outcome.of(hit.id)
    out = pb.HitExplanation(
        fused_score=hit.fused,
        quality_weight=hit.quality,
        fused_rank=outcome.fused_rank.get(hit.id, 0),
    )
    for leg, vote in hit.votes.items():
        raw = _raw(outcome.results[number].legs.get(leg), item, vote.score)
        out.legs.append(
            pb.LegScore(
                leg=_LEGS[leg],
                rank=vote.rank,
                score=raw,
                normalized=vote.calibrated,
                contribution=weights.get(leg, 0.0) * vote.calibrated / total,
            )
        )
    reranked = outcome.rerank.scores.get(hit.id)
    if reranked is not None:
        out.rerank_score, out.rerank_raw_score = reranked
    return out


def _raw(found: Found | None, item: int, fallback: float) -> float:
    if found is None:
        return fallback
    return found.scores.get(item, found.extra.get(item, fallback))


def _explanation(outcome: Outcome) -> pb.SearchExplanation:
    spec = outcome.spec
    out = pb.SearchExplanation(
        recipe=spec.recipe.name,
        fusion=_FUSIONS[spec.recipe.fusion],
        query_tokens=list(outcome.terms)[:256],
        model_ids=outcome.model_ids,
        rerank_model_id=outcome.rerank.model_id,
        gate_threshold=outcome.calibration.none_below,
        gated=outcome.ranking.held_back > 0,
    )
    for leg, number in _LEGS.items():
        found = [r.legs[leg] for r in outcome.results if leg in r.legs]
        out.legs.append(
            pb.LegReport(
                leg=number,
                ran=bool(found),
                candidates=sum(len(f.scores) for f in found),
                weight=outcome.ranking.leg_weights.get(leg, 0.0),
                method=",".join(dict.fromkeys(f.method for f in found)),
            )
        )
    return out


def recipe(value: Recipe) -> pb.Recipe:
    """A named recipe."""
    out = pb.Recipe(
        name=value.name,
        description=_RECIPE_TEXTS.get(value.name, ""),
        fusion=_FUSIONS[value.fusion],
        gate=pb.GATE_MODE_ON if value.gate else pb.GATE_MODE_OFF,
        rerank=pb.RerankOptions(
            kind=pb.RERANK_KIND_MODEL if value.rerank else pb.RERANK_KIND_OFF,
            candidates=value.rerank_head,
        ),
        diversity=pb.DiversityOptions(
            suppress_near_duplicates=0.0 < value.near_duplicate <= NEAR_DUPLICATE,
            mmr_lambda=value.mmr_lambda,
            max_per_document=value.per_document,
        ),
    )
    for leg, weight in value.weights.items():
        out.legs.append(pb.LegSetting(leg=_LEGS[leg], weight=weight, candidates=value.leg_k))
    return out


def calibration(value: InForce) -> pb.Calibration:
    """The calibration in force for a model."""
    inner = value.calibration
    out = pb.Calibration(
        model_id=inner.model_id,
        dense_low=inner.dense_low,
        dense_high=inner.dense_high,
        lexical_high=1.0,
        gate_threshold=inner.none_below,
        fitted=value.own,
        pairs=value.pairs,
    )
    if value.update_time is not None:
        out.update_time.CopyFrom(stamp(value.update_time))
    return out
