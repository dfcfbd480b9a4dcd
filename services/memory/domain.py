"""Values of the memory service. Pure data: no gRPC, no SQL, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    """Who produced a message."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


class Layer(StrEnum):
    """One kind of memory."""

    PROFILE = "profile"
    SUMMARY = "summary"
    EPISODES = "episodes"
    FRESH_TURNS = "fresh_turns"
    READINGS = "readings"


class FactKind(StrEnum):
    """Preferences are followed, facts are for reference."""

    PREFERENCE = "preference"
    FACT = "fact"


class Cardinality(StrEnum):
    """How many values of an attribute hold at once."""

    ONE = "one"
    MANY = "many"


class FactState(StrEnum):
    """Where a fact record stands."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    CORRECTED = "corrected"
    RETRACTED = "retracted"


class Origin(StrEnum):
    """How a derived item came to be."""

    LLM = "llm"
    RULES = "rules"
    CALLER = "caller"


@dataclass(frozen=True)
class Message:
    """One utterance. `speaker` is a display name, "" where the role says enough."""

    role: Role
    text: str
    speaker: str = ""


@dataclass(frozen=True)
class Turn:
    """One stored exchange. `position` orders a user's turns by acknowledgement."""

    turn_id: str
    user_id: str
    session_id: str
    sequence: int
    messages: tuple[Message, ...]
    event_time: datetime
    time_zone: str = "UTC"
    created_at: datetime | None = None
    digested: bool = False
    flags: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    position: int = 0
    attempts: int = 0

    @property
    def text(self) -> str:
        """All messages as one text, a line each."""
        return "\n".join(m.text for m in self.messages)


@dataclass(frozen=True)
class Source:
    """The words a derived item rests on."""

    turn_id: str
    session_id: str
    quote: str
    event_time: datetime


@dataclass(frozen=True)
class Fact:
    """One bi-temporal record. `closed_at`: when `valid_to` was recorded."""

    fact_id: str
    user_id: str
    kind: FactKind
    attribute: str
    value: str
    value_key: str
    statement: str
    cardinality: Cardinality
    state: FactState
    valid_from: datetime
    valid_to: datetime | None
    recorded_from: datetime
    recorded_to: datetime | None
    closed_at: datetime | None
    origin: Origin
    language: str
    etag: str
    sources: tuple[Source, ...] = ()
    source_count: int = 0


@dataclass(frozen=True)
class Candidate:
    """A fact as extraction proposes it, before it meets the profile.

    `ended`: the statement says that this no longer holds ("I left A"). `valid_from`: from when it
    is true, resolved from the words or the event time.
    """

    kind: FactKind
    attribute: str
    value: str
    statement: str
    quote: str
    turn_id: str
    session_id: str
    event_time: datetime
    valid_from: datetime
    origin: Origin
    language: str
    cardinality: Cardinality | None = None
    ended: bool = False


@dataclass(frozen=True)
class Note:
    """An episode as extraction proposes it."""

    note: str
    session_id: str
    event_time: datetime
    sources: tuple[Source, ...]
    origin: Origin
    language: str
    about_from: datetime | None = None
    about_to: datetime | None = None


@dataclass(frozen=True)
class Episode:
    """One stored note."""

    episode_id: str
    user_id: str
    session_id: str
    note: str
    event_time: datetime
    origin: Origin
    language: str
    created_at: datetime
    etag: str
    about_from: datetime | None = None
    about_to: datetime | None = None
    sources: tuple[Source, ...] = ()
    has_vector: bool = False


@dataclass(frozen=True)
class Summary:
    """One version of a summary; `session_id` "" is the user's."""

    user_id: str
    session_id: str
    version: int
    text: str
    covered_turns: int
    covered_until: int
    from_time: datetime
    to_time: datetime
    created_at: datetime
    origin: Origin


@dataclass(frozen=True)
class Reading:
    """One document a user has read."""

    reading_id: str
    user_id: str
    document_id: str
    title: str
    summary: str
    first_read_at: datetime
    read_at: datetime
    times: int
    weight: float
    metadata: Mapping[str, object] = field(default_factory=dict)
    has_vector: bool = False


@dataclass(frozen=True)
class Extraction:
    """What one pass over some turns proposes, and what it refused (reason -> count)."""

    candidates: tuple[Candidate, ...] = ()
    notes: tuple[Note, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    origin: Origin = Origin.RULES


@dataclass(frozen=True)
class Budget:
    """Daily limits of one layer; None is no limit."""

    layer: str
    daily_calls: int | None = None
    daily_tokens: int | None = None


@dataclass(frozen=True)
class TenantSettings:
    """Memory settings of one tenant, defaults filled in. Retention values are seconds."""

    half_life_days: float = 30.0
    decay_floor: float = 0.6
    gate: float | None = None
    summary_every: int = 10
    retention_s: Mapping[str, float] = field(default_factory=dict)
    budgets: Sequence[Budget] = ()
    etag: str = ""


@dataclass(frozen=True)
class Receipt:
    """Proof of a removal: counts and hashes, no content."""

    receipt_id: str
    scope: str
    subject_hash: str
    removed: Mapping[str, int]
    content_hash: str
    erased_at: datetime
    tombstones: int
