"""An OpenAI chat request becomes a ChatInput; what is not supported is refused by name."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common.errors import DomainError
from services.orchestrator import router
from services.orchestrator.gateway.errors import bad_request
from services.orchestrator.intents import INTENTS

_REFUSED = ("functions", "function_call", "audio", "prediction", "web_search_options")
_STRINGS = (
    "user_id",
    "session_id",
    "collection_id",
    "selected_text",
    "language",
    "time_zone",
    "document_title",
    "intent",
)
# Fields of ChatInput by their first part, as they are called in a request.
_FIELDS = {
    "message": "messages",
    "history": "messages",
    "instructions": "messages",
    "response_schema": "response_format",
    "max_output_tokens": "max_tokens",
    "request_id": "Idempotency-Key",
}
_TRUTHS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off", ""), False),
}
_WITHOUT_EFFECT = (
    ("top_p", 0, 1),
    ("presence_penalty", -2, 2),
    ("frequency_penalty", -2, 2),
    ("seed", -(2.0**63), 2.0**63),
)
_SYSTEM = frozenset({"system", "developer"})
_SLUGS = {spec.slug: intent for intent, spec in INTENTS.items()}


@dataclass(frozen=True)
class ChatCall:
    """A parsed request: what to ask, and how to answer."""

    input: pb.ChatInput
    request_id: str
    model: str
    stream: bool
    include_usage: bool
    events: bool


def parse(body: Mapping[str, Any], request: Request) -> ChatCall:
    """Read a request body; HttpError 400 names the field at fault.

    User, session and scope come from `user`, `metadata`, an object `nianlun`, or the headers
    X-Nianlun-User, X-Nianlun-Session and X-Nianlun-Collection; a model named
    "nianlun/<collection>" names a collection too.
    """
    _refuse(body)
    model = _string(body, "model") or "nianlun"
    extra = _extra(body, request, model)
    asked = pb.ChatInput(
        user_id=extra.get("user_id", ""),
        session_id=extra.get("session_id", ""),
        selected_text=extra.get("selected_text", ""),
        language=extra.get("language", ""),
        time_zone=extra.get("time_zone", ""),
        document_title=extra.get("document_title", ""),
    )
    _messages(body, asked)
    _scope(extra, asked)
    _switches(extra, asked)
    _format(body, extra, asked)
    _generation(body, asked)
    options = body.get("stream_options")
    if not isinstance(options, Mapping | None):
        raise bad_request("stream_options must be an object", "stream_options")
    include_usage = (options or {}).get("include_usage")
    if not isinstance(include_usage, bool | None):
        raise bad_request("include_usage must be true or false", "stream_options")
    if not isinstance(body.get("stream"), bool | None):
        raise bad_request("stream must be true or false", "stream")
    return ChatCall(
        input=asked,
        request_id=_header(request, "idempotency-key") or uuid.uuid4().hex,
        model=model,
        stream=bool(body.get("stream")),
        include_usage=bool(include_usage),
        events=_truth(extra, "events"),
    )


def as_asked(error: DomainError) -> DomainError:
    """`error` with the fields at fault named as an OpenAI client knows them."""
    if not error.violations:
        return error
    named = [(_asked_field(field), text) for field, text in error.violations]
    return DomainError(
        error.reason,
        error.message,
        metadata=error.metadata,
        violations=named,
        retry_after_s=error.retry_after_s,
        resource=error.resource,
        detail=error.detail,
    )


def _asked_field(field: str) -> str:
    bare = field.removeprefix("input.").removeprefix("scope.").removeprefix("generation.")
    return _FIELDS.get(re.split(r"[\[.]", bare)[0], bare)


def _refuse(body: Mapping[str, Any]) -> None:
    if body.get("tools") and body.get("tool_choice") != "none":
        raise bad_request(
            "tools of the client are not supported: this service calls its own tools "
            "(search_knowledge, recall_memory, open_document)",
            "tools",
            "unsupported_parameter",
        )
    if body.get("tool_choice") not in (None, "none", "auto"):
        raise bad_request("tool_choice needs tools", "tool_choice", "unsupported_value")
    for name in _REFUSED:
        if body.get(name):
            raise bad_request(f"{name} is not supported", name, "unsupported_parameter")
    if body.get("n") not in (None, 1) or body.get("n") is True:
        raise bad_request("n must be 1", "n", "unsupported_value")
    if body.get("logprobs"):
        raise bad_request("logprobs are not supported", "logprobs", "unsupported_parameter")
    if body.get("stop"):
        raise bad_request("stop is not supported", "stop", "unsupported_parameter")
    modalities = body.get("modalities")
    if modalities not in (None, ["text"]):
        raise bad_request("only text is supported", "modalities", "unsupported_value")


def _extra(body: Mapping[str, Any], request: Request, model: str) -> dict[str, Any]:
    """Everything beyond OpenAI's own fields, the most specific place winning."""
    merged: dict[str, Any] = {}
    _, _, collection = model.partition("/")
    if model.startswith("nianlun/") and collection:
        merged["collection_id"] = collection
    for header, key in (
        ("x-nianlun-user", "user_id"),
        ("x-nianlun-session", "session_id"),
        ("x-session-id", "session_id"),
        ("x-nianlun-collection", "collection_id"),
    ):
        value = _header(request, header)
        if value:
            merged[key] = value
    for name in ("metadata", "nianlun"):
        given = body.get(name)
        if given is None:
            continue
        if not isinstance(given, Mapping):
            raise bad_request(f"{name} must be an object", name)
        merged |= {key: value for key, value in given.items() if value is not None}
    user = _string(body, "user")
    if user:
        merged["user_id"] = user
    for key in _STRINGS:
        if not isinstance(merged.get(key, ""), str):
            raise bad_request(f"{key} must be a string", key)
    return merged


def _messages(body: Mapping[str, Any], asked: pb.ChatInput) -> None:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages must be a non-empty array", "messages")
    instructions: list[str] = []
    turns: list[tuple[pb.Role.ValueType, str]] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise bad_request(f"{where} must be an object", where)
        role, text = message.get("role"), _content(message, where)
        if not isinstance(role, str):
            raise bad_request(f"{where}.role must be a string", f"{where}.role")
        if role in _SYSTEM:
            instructions.append(text)
        elif role == "user":
            turns.append((pb.ROLE_USER, text))
        elif role == "assistant":
            turns.append((pb.ROLE_ASSISTANT, text))
        else:
            raise bad_request(
                f"{where}.role must be system, developer, user or assistant", f"{where}.role"
            )
    if not turns or turns[-1][0] != pb.ROLE_USER:
        raise bad_request("the last of messages must be a user message", "messages")
    asked.message = turns[-1][1]
    asked.instructions = "\n\n".join(text for text in instructions if text)
    earlier = [pb.HistoryMessage(role=role, text=text) for role, text in turns[:-1] if text.strip()]
    asked.history.extend(earlier[-200:])


def _content(message: Mapping[str, Any], where: str) -> str:
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad_request(f"{where}.content must be a string or an array", f"{where}.content")
    parts = []
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") not in ("text", "refusal"):
            raise bad_request(
                "only text parts are supported", f"{where}.content", "unsupported_value"
            )
        text = part.get("text") or part.get("refusal") or ""
        if not isinstance(text, str):
            raise bad_request(f"{where}.content holds a text that is none", f"{where}.content")
        parts.append(text)
    return "".join(parts)


def _scope(extra: Mapping[str, Any], asked: pb.ChatInput) -> None:
    asked.scope.collection_id = extra.get("collection_id", "")
    documents = extra.get("document_ids", [])
    if isinstance(documents, str):
        documents = [part.strip() for part in documents.split(",") if part.strip()]
    if not isinstance(documents, list) or not all(isinstance(one, str) for one in documents):
        raise bad_request("document_ids must be an array of strings", "document_ids")
    asked.scope.document_ids.extend(documents)


def _switches(extra: Mapping[str, Any], asked: pb.ChatInput) -> None:
    for name in ("use_memory", "use_retrieval", "use_tools", "save_turn"):
        if name in extra:
            setattr(asked, name, _truth(extra, name))
    asked.verify = _truth(extra, "verify")
    top_k = extra.get("top_k", 0)
    if isinstance(top_k, bool) or not isinstance(top_k, int) or not 0 <= top_k <= 20:
        raise bad_request("top_k must be an integer from 0 to 20", "top_k")
    asked.top_k = top_k


def _format(body: Mapping[str, Any], extra: Mapping[str, Any], asked: pb.ChatInput) -> None:
    """Plain text is answered in prose, JSON by a structured intent. An intent named by the caller
    wins.
    """
    wanted = body.get("response_format") or {"type": "text"}
    if not isinstance(wanted, Mapping):
        raise bad_request("response_format must be an object", "response_format")
    kind = wanted.get("type", "text")
    if kind == "json_schema":
        named = wanted.get("json_schema")
        schema = named.get("schema") if isinstance(named, Mapping) else None
        if not isinstance(schema, Mapping):
            raise bad_request(
                "response_format.json_schema.schema must be an object", "response_format"
            )
        asked.response_schema = json.dumps(schema, ensure_ascii=False)
    elif kind == "json_object":
        asked.intent = pb.INTENT_STRUCTURED_PLAN
    elif kind == "text":
        asked.intent = _in_prose(asked)
    else:
        raise bad_request("response_format.type is unknown", "response_format")
    slug = extra.get("intent")
    if slug:
        if slug not in _SLUGS:
            raise bad_request(f"intent must be one of {', '.join(sorted(_SLUGS))}", "intent")
        asked.intent = _SLUGS[slug]


def _in_prose(asked: pb.ChatInput) -> pb.Intent.ValueType:
    """The intent of a plain text: a collection alone makes a conversation no question about it."""
    documents = len(asked.scope.document_ids)
    scoped = bool(documents or asked.selected_text)
    return router.in_prose(
        asked.message, documents=documents, scoped=scoped, collection=False
    ).intent


def _generation(body: Mapping[str, Any], asked: pb.ChatInput) -> None:
    temperature = _number(body, "temperature", 0, 2)
    if temperature is not None:
        asked.generation.temperature = temperature
    # Read by every client library, without effect here; a wrong value is a mistake all the same.
    for name, low, high in _WITHOUT_EFFECT:
        _number(body, name, low, high)
    limit = body.get("max_completion_tokens")
    limit = body.get("max_tokens") if limit is None else limit
    if limit is not None:
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 32_768:
            raise bad_request("max_tokens must be an integer from 1 to 32768", "max_tokens")
        asked.generation.max_output_tokens = limit


def _string(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise bad_request(f"{name} must be a string", name)
    return value


def _number(body: Mapping[str, Any], name: str, low: float, high: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_request(f"{name} must be a number", name)
    if not low <= value <= high:
        raise bad_request(f"{name} must be from {low:g} to {high:g}", name)
    return float(value)


def _header(request: Request, name: str) -> str:
    """A header as clients mean it: ASCII, or UTF-8 that the protocol reads as Latin-1."""
    value = request.headers.get(name, "")
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def _truth(extra: Mapping[str, Any], name: str) -> bool:
    """Truth as JSON or, in OpenAI's metadata, as a string; nothing is false."""
    value = extra.get(name)
    found = _TRUTHS.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(found, bool | None):
        found = {0: False, 1: True}.get(found) if isinstance(found, int) else None
    if found is None and value is not None:
        raise bad_request(f"{name} must be true or false", name)
    return bool(found)
