"""From the messages of the services to what the tools answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.timestamp_pb2 import Timestamp

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as memory
from nianlun.orchestrator.v1 import orchestrator_pb2 as orchestrator
from nianlun.retriever.v1 import retriever_pb2 as retriever
from nianlun_mcp.shapes import Answered, Found, MemoryItem, Passage, Recalled, Remembered, Source

_TEXT_CHARS = 2_000


def degraded(entries: Iterable[common_pb2.Degradation]) -> list[str]:
    """What was skipped or replaced, and why."""
    names = common_pb2.DegradationKind
    return [
        f"{names.Name(each.kind).removeprefix('DEGRADATION_KIND_')}: {each.message}"
        for each in entries
    ]


def remembered(answer: memory.AppendTurnResponse, session_id: str) -> Remembered:
    """The receipt of a turn."""
    return Remembered(
        turn_id=answer.turn_id,
        session_id=session_id,
        flags=list(answer.flags),
        changed=[f"{each.field}: {', '.join(each.changes)}" for each in answer.sanitizations],
    )


def recalled(answer: memory.LoadMemoryResponse) -> Recalled:
    """What is known, and the ids of what is shown."""
    shown = {item for block in answer.blocks for item in block.item_ids}
    return Recalled(
        memory=answer.rendered,
        items=[item for item in _items(answer) if item.id in shown],
        confidence=answer.confidence,
        left_out=[_left_out(each) for each in answer.omissions],
        degraded=degraded(answer.degradations),
    )


def found(answer: retriever.SearchResponse) -> Found:
    """The passages of a search."""
    confidence = retriever.Confidence.Name(answer.confidence).removeprefix("CONFIDENCE_").lower()
    return Found(
        passages=[
            Passage(
                collection=hit.collection_id,
                document=hit.document_id,
                title=hit.title,
                section=" > ".join(hit.chunk.section_path),
                text=cut(hit.chunk.text),
                score=round(hit.score, 4),
            )
            for hit in answer.hits
        ],
        confidence=confidence,
        held_back=answer.held_back,
        degraded=degraded(answer.degradations),
    )


def answered(answer: orchestrator.ChatResponse) -> Answered:
    """The answer with the evidence it cites, each once."""
    sources = {
        each.evidence_id: Source(
            id=each.evidence_id,
            title=each.evidence.title,
            document=each.evidence.document_id,
            text=cut(each.evidence.text),
        )
        for each in answer.answer.citations
    }
    return Answered(
        answer=answer.answer.text,
        sources=list(sources.values()),
        run_id=answer.run_id,
        degraded=degraded(answer.degradations),
    )


def cut(text: str, chars: int = _TEXT_CHARS) -> str:
    """At most so many characters, with a sign of what is missing."""
    return text if len(text) <= chars else text[: chars - 1] + "…"


def _items(answer: memory.LoadMemoryResponse) -> Iterator[MemoryItem]:
    for fact in answer.profile:
        wish = fact.kind == memory.FACT_KIND_PREFERENCE
        yield MemoryItem(
            kind="preference" if wish else "fact",
            id=fact.fact_id,
            label=fact.attribute,
            trust="follow" if wish else "reference",
        )
    for hit in answer.episodes:
        note = hit.episode
        yield MemoryItem(
            kind="note", id=note.episode_id, label=_day(note.event_time), trust="reference"
        )
    for turn in answer.fresh_turns:
        label = f"{_day(turn.event_time)}, session {turn.session_id}"
        yield MemoryItem(kind="turn", id=turn.turn_id, label=label, trust="reference")


def _left_out(each: memory.Omission) -> str:
    layer = memory.Layer.Name(each.layer).removeprefix("LAYER_").lower()
    reason = memory.OmissionReason.Name(each.reason).removeprefix("OMISSION_REASON_").lower()
    return f"{each.count} of {layer}: {reason}"


def _day(stamp: Timestamp) -> str:
    return str(stamp.ToJsonString())[:10]
