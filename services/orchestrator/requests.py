"""The boundary: a ChatInput of the contract becomes a TurnInput, every bound checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common import errors, pii, validate
from services.orchestrator import language
from services.orchestrator.domain import HistoryLine, TurnInput
from services.orchestrator.reasoner import schemas

_FUTURE = timedelta(minutes=5)
_MESSAGE_CHARS = 32_000
_SCHEMA_BYTES = 32_768
_ROLES = {pb.ROLE_USER: "user", pb.ROLE_ASSISTANT: "assistant"}


@dataclass(frozen=True)
class Defaults:
    """What a request leaves open, and what becomes of personal data in it.

    `history_chars` bounds the history that is looked at: older messages cannot reach a prompt.
    """

    collection_id: str = ""
    top_k: int = 8
    redact: bool = True
    history_chars: int = 16_000


def turn_input(given: pb.ChatInput, defaults: Defaults) -> tuple[TurnInput, str]:
    """The validated input, and why its user_id cannot be used (empty when it can or none was
    given).

    A session belongs to a user: with an unusable user_id the input names none, so that nobody
    shares the checkpoint of everybody else whose user_id is unusable; the history is the one sent.
    """
    changes: list[common_pb2.Sanitization] = []
    message = validate.text("input.message", given.message, _MESSAGE_CHARS, changes=changes)
    if defaults.redact:
        message = _redacted("input.message", message, changes)
    user_id, why = _user(given.user_id)
    use_memory = given.use_memory if given.HasField("use_memory") else True
    session_id = _optional_id("input.session_id", given.session_id)
    collection, documents = _scope(given.scope, defaults)
    turn = TurnInput(
        message=message,
        event_time=_event_time(given),
        event_time_given=given.HasField("event_time"),
        language=language.choose(_short("input.language", given.language, 16), message),
        user_id=user_id,
        session_id="" if why else session_id,
        intent=_intent(given.intent),
        collection_id=collection,
        document_ids=documents,
        metadata_equals=_metadata(given.scope),
        selected_text=validate.text(
            "input.selected_text", given.selected_text, 20_000, 0, changes
        ).strip(),
        use_memory=use_memory,
        use_retrieval=given.use_retrieval if given.HasField("use_retrieval") else True,
        use_tools=given.use_tools if given.HasField("use_tools") else True,
        save_turn=given.save_turn if given.HasField("save_turn") else use_memory,
        verify=given.verify,
        response_schema=_schema(given.response_schema),
        instructions=validate.text(
            "input.instructions", given.instructions, 8_000, 0, changes
        ).strip(),
        history=_history(given, defaults, changes),
        time_zone=_zone(given.time_zone),
        at_least_position=_short("input.at_least_position", given.at_least_position, 256),
        top_k=int(validate.number("input.top_k", given.top_k, 0, 20)) or defaults.top_k,
        temperature=_temperature(given.generation),
        max_output_tokens=_output_tokens(given.generation),
        keep_prompt=given.keep_prompt,
        document_title=_short("input.document_title", given.document_title, 512),
        sanitizations=tuple(changes),
    )
    return turn, why


def _user(value: str) -> tuple[str, str]:
    """An unusable user_id is treated as none: the user still gets an answer, and the reason."""
    if not value:
        return "", ""
    try:
        return validate.ident("input.user_id", value), ""
    except errors.DomainError as error:
        return "", "; ".join(description for _, description in error.violations)


def _optional_id(field: str, value: str) -> str:
    return validate.ident(field, value) if value else ""


def _short(field: str, value: str, limit: int) -> str:
    return validate.text(field, value, limit, 0)


def _intent(value: int) -> pb.Intent.ValueType:
    validate.one_of_enum("input.intent", value, pb.Intent, unspecified_ok=True)
    return pb.Intent.ValueType(value)


def _scope(scope: pb.Scope, defaults: Defaults) -> tuple[str, tuple[str, ...]]:
    collection = _short("input.scope.collection_id", scope.collection_id, 128)
    collection = collection or defaults.collection_id
    validate.count("input.scope.document_ids", scope.document_ids, 100)
    documents = tuple(
        validate.ident(f"input.scope.document_ids[{index}]", value)
        for index, value in enumerate(scope.document_ids)
    )
    if documents and not collection:
        raise errors.invalid_argument(
            "input.scope.collection_id", "is required where document_ids are given"
        )
    return collection, tuple(dict.fromkeys(documents))


def _metadata(scope: pb.Scope) -> Mapping[str, common_pb2.Value]:
    validate.value_map("input.scope.metadata_equals", scope.metadata_equals, 16)
    return dict(scope.metadata_equals)


def _schema(text: str) -> Mapping[str, Any] | None:
    field = "input.response_schema"
    if not text:
        return None
    if len(text.encode("utf-8", "replace")) > _SCHEMA_BYTES:
        raise errors.invalid_argument(field, f"must have at most {_SCHEMA_BYTES} bytes")
    try:
        schema = json.loads(text)
        problem = schemas.check_schema(schema) if isinstance(schema, dict) else None
    except ValueError:
        raise errors.invalid_argument(field, "is no JSON") from None
    except RecursionError:
        raise errors.invalid_argument(field, "is nested too deeply") from None
    if not isinstance(schema, dict):
        raise errors.invalid_argument(field, "must be a JSON object")
    if problem:
        raise errors.invalid_argument(field, problem)
    return schema


def _history(
    given: pb.ChatInput, defaults: Defaults, changes: list[common_pb2.Sanitization]
) -> tuple[HistoryLine, ...]:
    validate.count("input.history", given.history, 200)
    lines = []
    for index, message in enumerate(given.history):
        field = f"input.history[{index}]"
        validate.one_of_enum(f"{field}.role", message.role, pb.Role)
        text = validate.text(f"{field}.text", message.text, _MESSAGE_CHARS, changes=changes)
        lines.append((f"{field}.text", HistoryLine(_ROLES[message.role], text)))
    kept: list[HistoryLine] = []
    left = defaults.history_chars
    # The newest first: what no longer fits the prompt's budget is not worth reading, but for the
    # question of an answer that does.
    while lines and (left >= 0 or kept[-1].role != "user"):
        field, line = lines.pop()
        left -= len(line.text)
        text = _redacted(field, line.text, changes) if defaults.redact else line.text
        kept.append(HistoryLine(line.role, text))
    return tuple(reversed(kept))


def _redacted(field: str, text: str, changes: list[common_pb2.Sanitization]) -> str:
    """`text` without personal data, by the rules that memory stores turns under."""
    found = pii.redact(text)
    if found.kinds:
        changes.append(common_pb2.Sanitization(field=field, changes=["pii_redacted"]))
    return found.text


def _event_time(given: pb.ChatInput) -> datetime:
    now = datetime.now(UTC)
    when = validate.timestamp("input.event_time", given.event_time)
    if not given.HasField("event_time") or when is None:
        return now
    if when > now + _FUTURE or when.year < 1970:
        raise errors.invalid_argument(
            "input.event_time", "must lie between 1970 and 5 minutes from now"
        )
    return when


def _zone(name: str) -> str:
    if not name:
        return "UTC"
    try:
        ZoneInfo(_short("input.time_zone", name, 64))
    except (LookupError, ValueError, OSError):
        raise errors.invalid_argument("input.time_zone", "is no IANA time zone") from None
    return name


def _temperature(given: pb.Generation) -> float | None:
    if not given.HasField("temperature"):
        return None
    return validate.number("input.generation.temperature", given.temperature, 0, 2)


def _output_tokens(given: pb.Generation) -> int | None:
    if not given.HasField("max_output_tokens"):
        return None
    return int(
        validate.number("input.generation.max_output_tokens", given.max_output_tokens, 1, 32_768)
    )
