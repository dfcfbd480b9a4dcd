"""The lines of an export: what each type may hold, so that whatever is stored can be read back.

An import comes from outside. Every value is checked against what the service itself would have
written, text is cleaned like text of any other call (sanitised, personal data out, instructions not
taken in), and what is derived from text (keys, flags, terms) is derived anew.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from services.common import errors, validate
from services.memory import keys, profile, safety, timex
from services.memory.append import prepare, terms_of
from services.memory.apply import note_terms
from services.memory.domain import Cardinality, FactKind, FactState, Message, Note, Origin, Role
from services.memory.extraction.text import sentences
from services.memory.store.readings import MAX_WEIGHT, MIN_WEIGHT

_MAX_METADATA: Final = 32
_MAX_COUNT: Final = 2**53
_MAX_INT: Final = 1_000_000_000


def _ident(value: str) -> str:
    try:
        return validate.ident("id", value)
    except errors.DomainError as error:
        raise ValueError(error.reason) from None


def _moment(value: datetime) -> datetime:
    # A year further in, so that no time zone leads out of what a datetime can hold.
    if not 1 < value.year < 9_999:
        raise ValueError("out of range")
    return value


def _zone(value: str) -> str:
    if timex.zone_of(value) is None:
        raise ValueError("not a time zone")
    return value


def _sanitised(value: str) -> str:
    return validate.sanitise(value)[0]


def _redacted(value: str) -> str:
    return safety.redact(_sanitised(value)).text


def _told(value: str) -> str:
    """A fact or note: refused where it is an instruction."""
    text = _redacted(value)
    if safety.is_injection(text):
        raise ValueError(_INSTRUCTION)
    return text


def _quoted(value: str) -> str:
    """Words of somebody's: what is an instruction among them is left out."""
    text = _redacted(value)
    if not safety.is_injection(text):
        return text
    kept = " ".join(s.text for s in sentences(text) if not safety.is_injection(s.text))
    if safety.is_injection(kept):
        raise ValueError(_INSTRUCTION)
    return kept


def _metadata(value: dict[str, JsonValue]) -> dict[str, Any]:
    """Metadata as a caller could have sent it, by way of the message that answers hold."""
    try:
        message = validate.value_map_message(value)  # type: ignore[arg-type]  # checked here
        return dict(validate.value_map("metadata", message, _MAX_METADATA))
    except (errors.DomainError, TypeError, KeyError, OverflowError) as error:
        raise ValueError(type(error).__name__) from None


_INSTRUCTION: Final = "holds an instruction to the system"

Ident = Annotated[str, AfterValidator(_ident)]
Moment = Annotated[AwareDatetime, AfterValidator(_moment)]
Plain = Annotated[str, AfterValidator(_sanitised)]
Redacted = Annotated[str, AfterValidator(_redacted)]
Told = Annotated[str, AfterValidator(_told)]
Quoted = Annotated[str, AfterValidator(_quoted)]
Metadata = Annotated[dict[str, JsonValue], AfterValidator(_metadata)]
Count = Annotated[int, Field(ge=0, le=_MAX_COUNT)]
Number = Annotated[int, Field(ge=1, le=_MAX_INT)]
Etag = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z-]{1,64}$")]
Attribute = Annotated[
    str, StringConstraints(pattern=r"^\w{1,64}$"), AfterValidator(profile.attribute_key)
]
Flag = Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,32}(:[a-z0-9_]{1,32})?$")]
Language = Literal["zh", "en"]


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class HeaderLine(_Line):
    """The first line."""

    type: Literal["header"]
    format: str
    version: int


class SessionLine(_Line):
    """A session."""

    type: Literal["sessions"]
    session_id: Ident
    turns: Count
    start_time: Moment
    last_time: Moment
    end_time: Moment | None


class MessageLine(_Line):
    """A message of a turn; `prepare` redacts it."""

    role: Role
    text: Plain
    speaker: Annotated[Redacted, Field(max_length=256)] = ""


class TurnLine(_Line):
    """A turn."""

    type: Literal["turns"]
    turn_id: uuid.UUID
    session_id: Ident
    sequence: Annotated[int, Field(ge=1, le=_MAX_COUNT)]
    messages: Annotated[list[MessageLine], Field(max_length=64)]
    event_time: Moment
    time_zone: Annotated[str, Field(max_length=64), AfterValidator(_zone)]
    create_time: Moment
    flags: Annotated[list[Flag], Field(max_length=64)]
    metadata: Metadata
    digest_state: Literal["fresh", "done", "quarantined"]


class FactLine(_Line):
    """A fact."""

    type: Literal["facts"]
    fact_id: uuid.UUID
    kind: FactKind
    attribute: Attribute
    value: Told
    value_key: str
    statement: Told
    cardinality: Cardinality
    state: FactState
    valid_from: Moment
    valid_to: Moment | None
    recorded_from: Moment
    recorded_to: Moment | None
    closed_at: Moment | None
    origin: Origin
    language: Language
    etag: Etag


class _SourceLine(_Line):
    turn_id: uuid.UUID
    session_id: Ident
    quote: Quoted
    event_time: Moment


class FactSourceLine(_SourceLine):
    """The words a fact rests on."""

    type: Literal["fact_sources"]
    fact_id: uuid.UUID


class EpisodeLine(_Line):
    """A note."""

    type: Literal["episodes"]
    episode_id: uuid.UUID
    session_id: Ident
    note: Told
    note_key: str
    event_time: Moment
    about_from: Moment | None
    about_to: Moment | None
    origin: Origin
    language: Language
    etag: Etag
    create_time: Moment


class EpisodeSourceLine(_SourceLine):
    """The words a note rests on."""

    type: Literal["episode_sources"]
    episode_id: uuid.UUID


class SummaryLine(_Line):
    """A version of a summary; `session_id` "" is the user's."""

    type: Literal["summaries"]
    session_id: Literal[""] | Ident
    version: Number
    text: Quoted
    covered_turns: Count
    covered_until: Count
    from_time: Moment
    to_time: Moment
    origin: Origin
    create_time: Moment


class ReadingLine(_Line):
    """A document the user has read. What it says is another's: shown for reference, like any."""

    type: Literal["readings"]
    document_id: Ident
    reading_id: uuid.UUID
    title: Redacted
    summary: Redacted
    metadata: Metadata
    first_read_time: Moment
    read_time: Moment
    times: Number
    weight: Annotated[float, Field(ge=MIN_WEIGHT, le=MAX_WEIGHT)]


Line = (
    HeaderLine | SessionLine | TurnLine | FactLine | FactSourceLine | EpisodeLine
    | EpisodeSourceLine | SummaryLine | ReadingLine
)  # fmt: skip
_LINE: Final[TypeAdapter[Line]] = TypeAdapter(Annotated[Line, Field(discriminator="type")])


@dataclass(frozen=True)
class Record:
    """One line, checked: its columns as JSON and, for what is searched, its id and terms."""

    kind: str
    columns: str
    item_id: str = ""
    terms: tuple[str, ...] = ()


def parse(line: str, field: str) -> Record | HeaderLine:
    """A line as it may be stored. INVALID_ARGUMENT names `field`."""
    try:
        found = _LINE.validate_json(line)
    except ValidationError as error:
        raise errors.invalid_argument(field, _reason(error)) from None
    if isinstance(found, HeaderLine):
        return found
    derived, item_id, terms = _derived(found)
    columns = found.model_copy(update=derived).model_dump_json(exclude={"type"}, exclude_unset=True)
    return Record(found.type, columns, item_id, terms)


def _reason(error: ValidationError) -> str:
    """What is wrong, without the value."""
    first = error.errors(include_url=False, include_input=False)[0]
    kind, path = first["type"], [str(part) for part in first["loc"]]
    if kind == "json_invalid":
        return "is not JSON"
    if len(path) < 2:
        return "has no known type"
    if kind in ("missing", "extra_forbidden"):
        return "has unknown or missing fields"
    if _INSTRUCTION in first["msg"]:
        return _INSTRUCTION
    return f"has an unusable {path[1]}"


def _derived(line: Line) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """(columns that follow from others, id, terms)."""
    if isinstance(line, TurnLine):
        return _turn(line)
    if isinstance(line, FactLine):
        cardinality = profile.cardinality_of(line.attribute, line.cardinality)
        return {"value_key": keys.value_key(line.value), "cardinality": cardinality}, "", ()
    if isinstance(line, EpisodeLine):
        note = Note(
            line.note, line.session_id, line.event_time.astimezone(UTC), (), line.origin,
            line.language, line.about_from and line.about_from.astimezone(UTC), line.about_to,
        )  # fmt: skip
        key = {"note_key": keys.note_key(line.note)}
        return key, str(line.episode_id), tuple(note_terms(note))
    return {}, "", ()


def _turn(line: TurnLine) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    made = prepare([Message(m.role, m.text, m.speaker) for m in line.messages])
    messages = [
        old.model_copy(update={"text": new.text})
        for old, new in zip(line.messages, made.messages, strict=True)
    ]
    # What was redacted when it was said cannot be seen any more: those flags are kept.
    flags = sorted({*line.flags, *made.flags})
    terms = terms_of(made.messages, line.event_time.astimezone(UTC))
    return {"messages": messages, "flags": flags}, str(line.turn_id), tuple(terms)
