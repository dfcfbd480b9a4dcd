"""Domain values to messages of the contract and back. No logic."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as pb
from services.common import validate
from services.memory import domain, profile, rendering
from services.memory.load import Loaded
from services.memory.readings import ReadingHit
from services.memory.recall import Ranked
from services.memory.selection import Left
from services.memory.store.sessions import SessionRow
from services.memory.store.usage import UsageRow
from services.memory.tokens import position_token
from services.search.types import Leg

ROLES: Final = {
    pb.ROLE_USER: domain.Role.USER,
    pb.ROLE_ASSISTANT: domain.Role.ASSISTANT,
    pb.ROLE_TOOL: domain.Role.TOOL,
    pb.ROLE_SYSTEM: domain.Role.SYSTEM,
}
_ROLE_NUMBERS: Final = {role: number for number, role in ROLES.items()}
_LAYERS: Final = {
    domain.Layer.PROFILE: pb.LAYER_PROFILE,
    domain.Layer.SUMMARY: pb.LAYER_SUMMARY,
    domain.Layer.EPISODES: pb.LAYER_EPISODES,
    domain.Layer.FRESH_TURNS: pb.LAYER_FRESH_TURNS,
    domain.Layer.READINGS: pb.LAYER_READINGS,
}
_TRUSTS: Final = {
    rendering.FOLLOW: pb.TRUST_FOLLOW,
    rendering.REFERENCE: pb.TRUST_REFERENCE,
}
KINDS: Final = {
    pb.FACT_KIND_PREFERENCE: domain.FactKind.PREFERENCE,
    pb.FACT_KIND_FACT: domain.FactKind.FACT,
}
_KIND_NUMBERS: Final = {kind: number for number, kind in KINDS.items()}
CARDINALITIES: Final = {
    pb.CARDINALITY_ONE: domain.Cardinality.ONE,
    pb.CARDINALITY_MANY: domain.Cardinality.MANY,
}
_CARDINALITY_NUMBERS: Final = {value: number for number, value in CARDINALITIES.items()}
_STATES: Final = {
    domain.FactState.ACTIVE: pb.FACT_STATE_ACTIVE,
    domain.FactState.SUPERSEDED: pb.FACT_STATE_SUPERSEDED,
    domain.FactState.CORRECTED: pb.FACT_STATE_CORRECTED,
    domain.FactState.RETRACTED: pb.FACT_STATE_RETRACTED,
}
_ORIGINS: Final = {
    domain.Origin.LLM: pb.ORIGIN_LLM,
    domain.Origin.RULES: pb.ORIGIN_RULES,
    domain.Origin.CALLER: pb.ORIGIN_CALLER,
}
_REASONS: Final = {
    "budget": pb.OMISSION_REASON_BUDGET,
    "gate": pb.OMISSION_REASON_GATE,
    "off": pb.OMISSION_REASON_SWITCHED_OFF,
    "top_k": pb.OMISSION_REASON_TOP_K,
    "excluded": pb.OMISSION_REASON_EXCLUDED_SESSION,
    "unsafe": pb.OMISSION_REASON_UNSAFE,
    "duplicate": pb.OMISSION_REASON_DUPLICATE,
}
_DEGRADATIONS: Final = {
    "dense": common_pb2.DEGRADATION_KIND_DENSE_LEG_SKIPPED,
    "cut": common_pb2.DEGRADATION_KIND_TRUNCATED,
    "pending": common_pb2.DEGRADATION_KIND_VECTORS_PENDING,
    "budget": common_pb2.DEGRADATION_KIND_BUDGET_STOPPED,
    "layer": common_pb2.DEGRADATION_KIND_MEMORY_LAYER_SKIPPED,
    "rules": common_pb2.DEGRADATION_KIND_RULES_EXTRACTION,
}
_LEGS: Final = (Leg.DENSE, Leg.LEXICAL, Leg.PHRASE)
_MAX_OMITTED: Final = 20


def stamp(moment: datetime | None) -> Timestamp | None:
    """A timestamp, or None for none."""
    if moment is None:
        return None
    out = Timestamp()
    out.FromDatetime(moment)
    return out


def duration(seconds: float | None) -> Duration | None:
    """A duration, or None for none."""
    if seconds is None:
        return None
    out = Duration()
    out.FromMilliseconds(round(seconds * 1000))
    return out


def metadata(stored: Mapping[str, Any]) -> dict[str, common_pb2.Value]:
    """Stored metadata as values."""
    return validate.value_map_message(stored)


def turn(value: domain.Turn) -> pb.Turn:
    """A turn."""
    return pb.Turn(
        turn_id=value.turn_id,
        user_id=value.user_id,
        session_id=value.session_id,
        sequence=value.sequence,
        messages=[
            pb.Message(role=_ROLE_NUMBERS[m.role], text=m.text, speaker=m.speaker)
            for m in value.messages
        ],
        event_time=stamp(value.event_time),
        time_zone=value.time_zone,
        create_time=stamp(value.created_at),
        digested=value.digested,
        flags=value.flags,
        metadata=metadata(value.metadata),
    )


def source(value: domain.Source) -> pb.Source:
    """A source."""
    return pb.Source(
        turn_id=value.turn_id,
        session_id=value.session_id,
        quote=value.quote[:1_000],
        event_time=stamp(value.event_time),
    )


def fact(value: domain.Fact) -> pb.Fact:
    """A fact."""
    return pb.Fact(
        fact_id=value.fact_id,
        user_id=value.user_id,
        kind=_KIND_NUMBERS[value.kind],
        attribute=profile.attribute_key(value.attribute),
        value=value.value,
        statement=value.statement,
        cardinality=_CARDINALITY_NUMBERS[value.cardinality],
        state=_STATES[value.state],
        valid_from=stamp(value.valid_from),
        valid_to=stamp(value.valid_to),
        recorded_from=stamp(value.recorded_from),
        recorded_to=stamp(value.recorded_to),
        sources=[source(s) for s in value.sources],
        origin=_ORIGINS[value.origin],
        etag=value.etag,
        language=value.language,
        source_count=value.source_count,
    )


def episode(value: domain.Episode) -> pb.Episode:
    """A note."""
    return pb.Episode(
        episode_id=value.episode_id,
        user_id=value.user_id,
        session_id=value.session_id,
        note=value.note,
        event_time=stamp(value.event_time),
        sources=[source(s) for s in value.sources],
        origin=_ORIGINS[value.origin],
        vector_state=_vector_state(value.has_vector),
        create_time=stamp(value.created_at),
        etag=value.etag,
        language=value.language,
        about_from=stamp(value.about_from),
        about_to=stamp(value.about_to),
    )


def _vector_state(ready: bool) -> pb.VectorState.ValueType:
    return pb.VECTOR_STATE_READY if ready else pb.VECTOR_STATE_PENDING


def legs(ranked: Ranked) -> list[pb.LegScore]:
    """Per-leg ranks and scores of a hit."""
    return [
        pb.LegScore(leg=leg.value, rank=vote.rank, score=vote.score)
        for leg in _LEGS
        if (vote := ranked.hit.votes.get(leg)) is not None
    ]


def episode_hit(value: domain.Episode, ranked: Ranked, now: datetime) -> pb.EpisodeHit:
    """A note with the account of its score."""
    age = max(0.0, (now - value.event_time).total_seconds() / 86_400)
    return pb.EpisodeHit(
        episode=episode(value),
        score=ranked.score,
        relevance=ranked.relevance,
        decay=ranked.decay,
        age_days=age,
        legs=legs(ranked),
    )


def summary(value: domain.Summary) -> pb.Summary:
    """A summary."""
    return pb.Summary(
        user_id=value.user_id,
        session_id=value.session_id,
        version=value.version,
        text=value.text,
        covered_turns=value.covered_turns,
        covered_until_sequence=value.covered_until if value.session_id else 0,
        from_time=stamp(value.from_time),
        to_time=stamp(value.to_time),
        create_time=stamp(value.created_at),
        origin=_ORIGINS[value.origin],
    )


def reading(value: domain.Reading) -> pb.Reading:
    """A reading."""
    return pb.Reading(
        reading_id=value.reading_id,
        user_id=value.user_id,
        document_id=value.document_id,
        title=value.title,
        summary=value.summary,
        first_read_time=stamp(value.first_read_at),
        read_time=stamp(value.read_at),
        times=value.times,
        weight=value.weight,
        vector_state=_vector_state(value.has_vector),
        metadata=metadata(value.metadata),
    )


def reading_hit(value: ReadingHit) -> pb.ReadingHit:
    """A reading with the account of its score."""
    return pb.ReadingHit(
        reading=reading(value.reading), score=value.score, similarity=value.similarity
    )


def session(value: SessionRow) -> pb.Session:
    """A session."""
    return pb.Session(
        session_id=value.session_id,
        turns=value.turns,
        start_time=stamp(value.start_time),
        last_time=stamp(value.last_time),
        end_time=stamp(value.end_time),
    )


def receipt(value: domain.Receipt) -> pb.EraseReceipt:
    """A receipt."""
    return pb.EraseReceipt(
        receipt_id=value.receipt_id,
        scope=value.scope,
        subject_hash=value.subject_hash,
        removed=dict(value.removed),
        content_hash=value.content_hash,
        erase_time=stamp(value.erased_at),
        tombstones=value.tombstones,
    )


def degradation(kind: str, layer: str, message: str) -> common_pb2.Degradation:
    """A degradation of memory."""
    return common_pb2.Degradation(
        kind=_DEGRADATIONS[kind], source="memory", message=message, metadata={"layer": layer}
    )


def not_searched(beyond: int, layer: str) -> list[common_pb2.Degradation]:
    """The degradation of a search that left out `beyond` older items; none for 0."""
    if not beyond:
        return []
    return [degradation("cut", layer, f"{beyond} older items are not searched.")]


def omission(value: Left) -> pb.Omission:
    """Items left out."""
    return pb.Omission(
        layer=_LAYERS[value.layer],
        reason=_REASONS[value.reason],
        count=value.count,
        item_ids=value.ids[:_MAX_OMITTED],
    )


def loaded(value: Loaded, tenant_id: str, user_id: str, now: datetime) -> pb.LoadMemoryResponse:
    """The answer of LoadMemory."""
    out = pb.LoadMemoryResponse(
        profile=[fact(f) for f in value.facts],
        episodes=[episode_hit(e, r, now) for e, r in value.episodes],
        fresh_turns=[turn(t) for t in value.turns],
        readings=[reading_hit(r) for r in value.readings],
        blocks=[
            pb.Block(
                trust=_TRUSTS[b.trust],
                layer=_LAYERS[b.layer],
                text=b.text,
                tokens=b.tokens,
                item_ids=b.item_ids,
            )
            for b in value.rendered.blocks
        ],
        rendered=value.rendered.text,
        tokens=value.rendered.tokens,
        omissions=[omission(o) for o in value.omissions],
        position=position_token(tenant_id, user_id, value.position),
        degradations=[degradation(*d) for d in value.degradations],
        timings=[common_pb2.StepTiming(step=s, ms=ms) for s, ms in value.timings],
        confidence=value.confidence,
    )
    if value.session_summary is not None:
        out.session_summary.CopyFrom(summary(value.session_summary))
    if value.user_summary is not None:
        out.user_summary.CopyFrom(summary(value.user_summary))
    return out


def usage(value: UsageRow) -> pb.UsageEntry:
    """Usage of a layer on a day."""
    return pb.UsageEntry(
        day=value.day.isoformat(),
        layer=value.layer,
        calls=value.calls,
        prompt_tokens=value.prompt_tokens,
        completion_tokens=value.completion_tokens,
        cost_micros=value.cost_micros,
        failed_calls=value.failed_calls,
        stopped_calls=value.stopped_calls,
    )


def budget(value: domain.Budget) -> pb.Budget:
    """A budget."""
    return pb.Budget(
        layer=value.layer, daily_calls=value.daily_calls, daily_tokens=value.daily_tokens
    )


def settings(value: domain.TenantSettings) -> pb.Settings:
    """A tenant's settings."""
    kept = value.retention_s
    return pb.Settings(
        half_life_days=value.half_life_days,
        decay_floor=value.decay_floor,
        gate=value.gate,
        summary_every=value.summary_every,
        retention=pb.Retention(
            turns=duration(kept.get("turns")),
            episodes=duration(kept.get("episodes")),
            closed_facts=duration(kept.get("closed_facts")),
            readings=duration(kept.get("readings")),
            summary_versions=duration(kept.get("summary_versions")),
        ),
        budgets=[budget(b) for b in value.budgets],
        etag=value.etag,
    )
