"""The memory service behind the Memory seam."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2, memory_pb2_grpc
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator.domain import (
    LoadedMemory,
    MemoryFact,
    MemoryNote,
    Readings,
    Recalled,
    SimilarReading,
    TurnInput,
)
from services.orchestrator.ports import TurnToSave

_LAYERS = {
    memory_pb2.LAYER_PROFILE: "profile",
    memory_pb2.LAYER_SUMMARY: "summary",
    memory_pb2.LAYER_EPISODES: "episodes",
    memory_pb2.LAYER_FRESH_TURNS: "fresh_turns",
    memory_pb2.LAYER_READINGS: "readings",
}
_LINE_CHARS = 2_000


class GrpcMemory:
    """Memory over gRPC; the channel forwards credential, request id and deadline."""

    def __init__(self, stub: memory_pb2_grpc.MemoryServiceAsyncStub) -> None:
        self._stub = stub

    async def load(
        self, turn: TurnInput, budget_tokens: int, exclude_session: bool
    ) -> LoadedMemory:
        """See Memory."""
        request = memory_pb2.LoadMemoryRequest(
            user_id=turn.user_id,
            session_id=turn.session_id,
            query=turn.message,
            budget_tokens=budget_tokens,
            at_least=turn.at_least_position,
            exclude_session=exclude_session and bool(turn.session_id),
            time_zone=turn.time_zone if turn.time_zone != "UTC" else "",
            current_document_id=turn.document_ids[0] if len(turn.document_ids) == 1 else "",
        )
        return _loaded(await self._stub.LoadMemory(request), turn)

    async def recall(self, user_id: str, query: str, top_k: int) -> Recalled:
        """Notes first, then turns that no note covers yet."""
        episodes, turns = await asyncio.gather(
            self._stub.SearchEpisodes(
                memory_pb2.SearchEpisodesRequest(user_id=user_id, query=query, top_k=top_k)
            ),
            self._stub.SearchTurns(
                memory_pb2.SearchTurnsRequest(user_id=user_id, query=query, top_k=top_k)
            ),
        )
        notes = [_episode_note(hit) for hit in episodes.hits]
        notes += [_turn_note(hit.turn, hit.score) for hit in turns.hits]
        return Recalled(
            notes=tuple(notes[: 2 * top_k]),
            degradations=(*episodes.degradations, *turns.degradations),
        )

    async def save(self, turn: TurnToSave) -> str:
        """See Memory."""
        response = await self._stub.AppendTurn(
            memory_pb2.AppendTurnRequest(
                request_id=turn.request_id,
                user_id=turn.user_id,
                session_id=turn.session_id,
                messages=[
                    memory_pb2.Message(role=memory_pb2.ROLE_USER, text=turn.user_text),
                    memory_pb2.Message(role=memory_pb2.ROLE_ASSISTANT, text=turn.assistant_text),
                ],
                event_time=_stamp(turn.event_time),
                time_zone=turn.time_zone,
                metadata={"run_id": common_pb2.Value(string_value=turn.run_id)},
            )
        )
        return response.position

    async def readings(self, user_id: str, document_id: str, text: str) -> Readings:
        """See Memory."""
        response = await self._stub.FindSimilarReadings(
            memory_pb2.FindSimilarReadingsRequest(
                user_id=user_id, document_id=document_id, text=text[:8_000], top_k=3
            )
        )
        similar = tuple(
            SimilarReading(
                reading_id=hit.reading.reading_id,
                document_id=hit.reading.document_id,
                title=hit.reading.title,
                summary=hit.reading.summary,
                read_time=_instant(hit.reading.read_time),
                score=min(1.0, hit.score),
            )
            for hit in response.hits
        )
        return Readings(
            similar=similar,
            earlier=response.earlier_readings,
            known=True,
            degradations=tuple(response.degradations),
        )

    async def record_reading(
        self, request_id: str, user_id: str, document_id: str, title: str, summary: str
    ) -> None:
        """See Memory."""
        await self._stub.RecordReading(
            memory_pb2.RecordReadingRequest(
                request_id=request_id,
                user_id=user_id,
                document_id=document_id,
                title=title[:500],
                summary=summary[:8_000],
            )
        )

    async def reading_feedback(
        self, request_id: str, user_id: str, document_id: str, useful: bool
    ) -> None:
        """See Memory."""
        verdict = (
            memory_pb2.READING_VERDICT_USEFUL if useful else memory_pb2.READING_VERDICT_NOT_USEFUL
        )
        await self._stub.RecordReadingFeedback(
            memory_pb2.RecordReadingFeedbackRequest(
                request_id=request_id, user_id=user_id, document_id=document_id, verdict=verdict
            )
        )


def _loaded(response: memory_pb2.LoadMemoryResponse, turn: TurnInput) -> LoadedMemory:
    trusts = {block.trust for block in response.blocks}
    return LoadedMemory(
        rendered=response.rendered,
        has_preferences=memory_pb2.TRUST_FOLLOW in trusts,
        has_reference=memory_pb2.TRUST_REFERENCE in trusts,
        tokens=response.tokens,
        items=tuple(_used(response, turn)),
        left_out=tuple(
            pb.MemoryLeftOut(
                layer=_LAYERS.get(one.layer, ""),
                count=one.count,
                reason=memory_pb2.OmissionReason.Name(one.reason)
                .removeprefix("OMISSION_REASON_")
                .lower(),
            )
            for one in response.omissions
        ),
        facts=tuple(_fact(fact) for fact in response.profile),
        notes=tuple(_notes(response)),
        degradations=tuple(response.degradations),
        timings=tuple(response.timings),
        position=response.position,
        confidence=response.confidence,
    )


def _fact(fact: memory_pb2.Fact) -> MemoryFact:
    return MemoryFact(
        fact_id=fact.fact_id,
        attribute=fact.attribute,
        value=fact.value,
        statement=fact.statement,
        preference=fact.kind == memory_pb2.FACT_KIND_PREFERENCE,
        language=fact.language,
    )


def _notes(response: memory_pb2.LoadMemoryResponse) -> list[MemoryNote]:
    notes = [_turn_note(turn, 0.0) for turn in response.fresh_turns]
    notes += [_episode_note(hit) for hit in response.episodes]
    for summary in (response.session_summary, response.user_summary):
        if summary.text:
            notes.append(MemoryNote("", "summary", summary.text, _instant(summary.to_time), 0.0))
    return notes


def _episode_note(hit: memory_pb2.EpisodeHit) -> MemoryNote:
    episode = hit.episode
    return MemoryNote(
        item_id=episode.episode_id,
        layer="episodes",
        text=episode.note,
        when=_instant(episode.event_time),
        score=hit.score,
        session_id=episode.session_id,
    )


def _turn_note(turn: memory_pb2.Turn, score: float) -> MemoryNote:
    said = [m.text for m in turn.messages if m.role == memory_pb2.ROLE_USER]
    return MemoryNote(
        item_id=turn.turn_id,
        layer="fresh_turns",
        text="\n".join(said),
        when=_instant(turn.event_time),
        score=score,
        session_id=turn.session_id,
    )


def _used(response: memory_pb2.LoadMemoryResponse, turn: TurnInput) -> list[pb.MemoryUsed]:
    """What stands in the rendered blocks, item by item, with why it is there."""
    shown = {item_id: block for block in response.blocks for item_id in block.item_ids}
    zh = turn.language == "zh"
    used: list[pb.MemoryUsed] = []

    def add(
        item_id: str, layer: str, text: str, when: datetime | None, score: float, why: str
    ) -> None:
        if item_id and item_id not in shown:
            return
        block = shown.get(item_id)
        follow = block is not None and block.trust == memory_pb2.TRUST_FOLLOW
        used.append(
            pb.MemoryUsed(
                item_id=item_id,
                layer=layer,
                trust="follow" if follow else "reference",
                text=text[:_LINE_CHARS],
                event_time=_stamp(when) if when else None,
                score=score,
                why=why,
            )
        )

    for fact in response.profile:
        preference = fact.kind == memory_pb2.FACT_KIND_PREFERENCE
        why = (
            ("用户的偏好，每次都读取" if zh else "a preference, always loaded")
            if preference
            else ("用户档案" if zh else "profile")
        )
        add(fact.fact_id, "profile", fact.statement, _instant(fact.valid_from), 0.0, why)
    for note in _notes(response):
        why = {
            "episodes": f"与问题相关，得分 {note.score:.2f}"
            if zh
            else f"relevant, score {note.score:.2f}",
            "fresh_turns": "刚说过，还没整理" if zh else "said recently, not digested yet",
            "summary": "摘要" if zh else "summary",
        }[note.layer]
        add(note.item_id, note.layer, note.text, note.when, note.score, why)
    for hit in response.readings:
        reading = hit.reading
        why = "相近的读物" if zh else "a similar reading"
        add(
            reading.reading_id,
            "readings",
            reading.title,
            _instant(reading.read_time),
            hit.score,
            why,
        )
    return used


def _instant(stamp: Timestamp) -> datetime | None:
    return stamp.ToDatetime(tzinfo=UTC) if stamp.seconds or stamp.nanos else None


def _stamp(when: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(when)
    return stamp
