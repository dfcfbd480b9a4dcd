"""AppendTurn: prepare a turn (redact, flag, tokenise) and write it in one statement."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from services.common import errors
from services.memory import safety
from services.memory.deps import Deps, lock_of, session_key
from services.memory.domain import Message, Role
from services.memory.safety.mineable import holds_memory_block
from services.memory.store.turns import AppendReceipt, NewTurn
from services.memory.threads import by_size
from services.search import TOK_VERSION, tokenize

_MAX_TERMS = 20_000


@dataclass(frozen=True)
class Incoming:
    """A turn as it arrived, checked and sanitised."""

    rpc: str
    request_id: str
    request_hash: bytes
    user_id: str
    session_id: str
    messages: Sequence[Message]
    event_time: datetime
    time_zone: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Prepared:
    """A turn as it will be stored: personal data out, what was found as flags."""

    messages: tuple[Message, ...]
    flags: tuple[str, ...]
    redacted: tuple[int, ...]
    """Indexes of the messages that were changed."""


def prepare(messages: Sequence[Message]) -> Prepared:
    """Redact personal data and flag what the safety rules see. Pure."""
    kept: list[Message] = []
    flags: set[str] = set()
    changed: list[int] = []
    for number, message in enumerate(messages):
        redaction = safety.redact(message.text)
        if redaction.kinds:
            flags.update(f"pii:{kind}" for kind in redaction.kinds)
            changed.append(number)
        if message.role in (Role.USER, Role.TOOL) and safety.is_injection(redaction.text):
            flags.add("injection")
        if holds_memory_block(redaction.text):
            flags.add("memory_block")
        kept.append(replace(message, text=redaction.text))
    return Prepared(tuple(kept), tuple(sorted(flags)), tuple(changed))


def terms_of(messages: Sequence[Message], event_time: datetime) -> list[str]:
    """Terms under which a turn is found: its words and its day."""
    text = "\n".join(m.text for m in messages)
    return tokenize(f"{text}\n{event_time:%Y-%m-%d}")[:_MAX_TERMS]


async def ready(messages: Sequence[Message], event_time: datetime) -> tuple[Prepared, list[str]]:
    """A turn as it will be stored, and its terms. A long one leaves the loop free meanwhile."""

    def work() -> tuple[Prepared, list[str]]:
        prepared = prepare(messages)
        return prepared, terms_of(prepared.messages, event_time)

    return await by_size(sum(len(m.text) for m in messages), work)


async def append(deps: Deps, tenant_id: str, turn: Incoming) -> tuple[AppendReceipt, Prepared]:
    """Store a turn. REQUEST_ID_REUSED when the id came with other content."""
    prepared, terms = await ready(turn.messages, turn.event_time)
    new = NewTurn(
        rpc=turn.rpc,
        request_id=turn.request_id,
        request_hash=turn.request_hash,
        user_id=turn.user_id,
        session_id=turn.session_id,
        turn_id=str(uuid.uuid4()),
        messages=prepared.messages,
        event_time=turn.event_time,
        time_zone=turn.time_zone,
        flags=prepared.flags,
        metadata=dict(turn.metadata),
        tok_version=TOK_VERSION,
        terms=terms,
        lock=lock_of(tenant_id, turn.user_id),
        dedupe=session_key(tenant_id, turn.user_id, turn.session_id),
    )
    receipt = await deps.writer.append(tenant_id, new)
    deps.wake()
    if receipt.replayed and receipt.request_hash != turn.request_hash:
        raise errors.request_id_reused()
    return receipt, prepared
