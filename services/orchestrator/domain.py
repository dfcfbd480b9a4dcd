"""Values of one turn. What stands in the contract is used as it is; the rest stands here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb

Language = Literal["zh", "en"]


@dataclass(frozen=True)
class HistoryLine:
    """One earlier message; `role` is "user" or "assistant"."""

    role: str
    text: str


@dataclass(frozen=True)
class History:
    """The session as the checkpoint has it: a summary of the older part, then the
    latest messages.
    """

    lines: tuple[HistoryLine, ...] = ()
    summary: str = ""
    stored: bool = False


@dataclass(frozen=True)
class TurnInput:
    """A validated ChatInput with its defaults filled in."""

    message: str
    event_time: datetime
    language: Language
    user_id: str = ""
    session_id: str = ""
    intent: pb.Intent.ValueType = pb.INTENT_UNSPECIFIED
    collection_id: str = ""
    document_ids: tuple[str, ...] = ()
    metadata_equals: Mapping[str, common_pb2.Value] = field(default_factory=dict)
    selected_text: str = ""
    use_memory: bool = True
    use_retrieval: bool = True
    use_tools: bool = True
    save_turn: bool = True
    verify: bool = False
    response_schema: Mapping[str, Any] | None = None
    instructions: str = ""
    history: tuple[HistoryLine, ...] = ()
    event_time_given: bool = False
    time_zone: str = "UTC"
    at_least_position: str = ""
    top_k: int = 8
    temperature: float | None = None
    max_output_tokens: int | None = None
    keep_prompt: bool = False
    document_title: str = ""
    sanitizations: tuple[common_pb2.Sanitization, ...] = ()


@dataclass(frozen=True)
class MemoryFact:
    """A profile fact, as much of it as an answer without a model needs."""

    fact_id: str
    attribute: str
    value: str
    statement: str
    preference: bool
    language: str


@dataclass(frozen=True)
class MemoryNote:
    """Something said earlier: an episode note, an undigested message of the user, a summary."""

    item_id: str
    layer: str
    text: str
    when: datetime | None
    score: float
    session_id: str = ""


@dataclass(frozen=True)
class Recalled:
    """What was said earlier about one question, best first, and what its search lacked."""

    notes: tuple[MemoryNote, ...] = ()
    degradations: tuple[common_pb2.Degradation, ...] = ()


@dataclass(frozen=True)
class LoadedMemory:
    """What the memory service knows for one question. `rendered` is its text for
    a system prompt.
    """

    rendered: str = ""
    has_preferences: bool = False
    has_reference: bool = False
    tokens: int = 0
    items: tuple[pb.MemoryUsed, ...] = ()
    left_out: tuple[pb.MemoryLeftOut, ...] = ()
    facts: tuple[MemoryFact, ...] = ()
    notes: tuple[MemoryNote, ...] = ()
    degradations: tuple[common_pb2.Degradation, ...] = ()
    timings: tuple[common_pb2.StepTiming, ...] = ()
    position: str = ""
    confidence: float = 0.0

    @property
    def empty(self) -> bool:
        """True when nothing is known."""
        return not self.rendered


@dataclass(frozen=True)
class Retrieved:
    """Evidence for one question, best first, ids not yet given."""

    evidence: tuple[pb.Evidence, ...] = ()
    confidence: str = ""
    held_back: int = 0
    degradations: tuple[common_pb2.Degradation, ...] = ()
    timings: tuple[common_pb2.StepTiming, ...] = ()


@dataclass(frozen=True)
class Readings:
    """Earlier readings of the user near the current document. `earlier` counts all of them."""

    similar: tuple[SimilarReading, ...] = ()
    earlier: int = 0
    known: bool = False
    degradations: tuple[common_pb2.Degradation, ...] = ()


@dataclass(frozen=True)
class SimilarReading:
    """One earlier reading; `score` is similarity times feedback weight."""

    reading_id: str
    document_id: str
    title: str
    summary: str
    read_time: datetime | None
    score: float


def degradation(
    kind: common_pb2.DegradationKind.ValueType, source: str, message: str, **metadata: str
) -> common_pb2.Degradation:
    """A Degradation; `message` is cut to the 500 characters of the contract."""
    return common_pb2.Degradation(
        kind=kind, source=source, message=message[:500], metadata=metadata
    )
