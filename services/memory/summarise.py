"""Summaries: per session from the previous version and the new turns; per user from the sessions'.

A version covers exactly the turns it says. The user's summary is put together without a model, so
that it costs nothing and never drifts from the sessions it is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from services.common import errors
from services.common.db import Connection
from services.common.jobs import JobRun, Retry
from services.common.llm import ChatClient, Completion
from services.memory import safety
from services.memory.deps import Deps
from services.memory.digest import costs
from services.memory.domain import Origin, Role, Summary, Turn
from services.memory.extraction import notes
from services.memory.extraction.text import clip, sentences
from services.memory.prompts import summary as prompt
from services.memory.safety.mineable import own_words
from services.memory.store import summaries as store
from services.memory.store import turns as turn_store
from services.memory.store import usage as usage_store
from services.memory.tellable import tellable

MAX_CHARACTERS = 2_000
_RULES_CHARACTERS = 900
_USER_SESSIONS = 12


@dataclass(frozen=True)
class _Basis:
    """What a version is made from. Two that are equal say that nothing was deleted in between: no
    turn, no note of one (`allowed`), and not the text that is gone on with (`previous`)."""

    previous: Summary | None
    turns: tuple[Turn, ...]
    """Those the version will cover."""
    allowed: tuple[Turn, ...]
    """Of `turns`, those that may be told of."""


@dataclass(frozen=True)
class Summariser:
    """`client` is None without a model: rules then list what the notes say."""

    deps: Deps
    client: ChatClient | None = None

    async def handle(self, run: JobRun) -> dict[str, str]:
        """Job handler: bring the session's summary up to date, then the user's."""
        user_id, session_id = run.subject["user_id"], run.subject.get("session_id", "")
        made = 0
        if session_id:
            made += await self.session(run, user_id, session_id)
        made += await self.user(run, user_id)
        return {"versions": str(made)}

    async def session(self, run: JobRun, user_id: str, session_id: str) -> int:
        """A new version of a session's summary if there are new turns; 1 when one was made."""
        tenant_id = run.tenant_id
        async with self.deps.db.tenant(tenant_id) as conn:
            basis = await _basis(conn, tenant_id, user_id, session_id)
            stopped = "summary" in await usage_store.exhausted_layers(conn)
        if not basis.turns:
            return 0
        text, origin, completion = await self._text(run, basis, stopped)
        async with self.deps.db.tenant(tenant_id) as conn:
            there = await turn_store.lock_user(conn, user_id)
            await run.fence(conn)
            if completion is not None or (stopped and self.client is not None):
                await usage_store.add(
                    conn, "summary", stopped=int(stopped),
                    **costs(self.deps, completion, int(completion is not None)),
                )  # fmt: skip
            if not there:
                return 0
            until = basis.turns[-1].sequence
            same = await _basis(conn, tenant_id, user_id, session_id, until) == basis
            made = (
                same and bool(text) and await _add(conn, user_id, session_id, basis, text, origin)
            )
        if not same:
            # Something it rests on was deleted meanwhile: the next attempt starts from what is
            # left. The call was made, so its cost stays counted.
            raise Retry("FAILED_PRECONDITION", 0.1, "what it rests on changed while summarising")
        return int(made)

    async def _text(
        self, run: JobRun, basis: _Basis, stopped: bool
    ) -> tuple[str, Origin, Completion | None]:
        before, turns = basis.previous.text if basis.previous else "", basis.allowed
        if self.client is None or stopped:
            return by_rules(before, turns), Origin.RULES, None
        rendered = [line for turn in turns if (line := _rendered(turn))]
        if not rendered:
            return before, Origin.LLM, None
        try:
            completion = await self.client.complete(
                prompt.messages(before, rendered), timeout_s=self.deps.settings.extract_timeout_s
            )
        except errors.DomainError as error:
            if error.retryable:
                raise Retry(error.reason, error.retry_after_s, error.message) from error
            return by_rules(before, turns), Origin.RULES, None
        text = _safe(completion.text.strip())
        if not text:
            return by_rules(before, turns), Origin.RULES, completion
        return clip(text, MAX_CHARACTERS), Origin.LLM, completion

    async def user(self, run: JobRun, user_id: str) -> int:
        """A new version of the user's summary when a session's has changed."""
        async with self.deps.db.tenant(run.tenant_id) as conn:
            there = await turn_store.lock_user(conn, user_id)
            await run.fence(conn)
            if not there:
                return 0
            return int(await refresh_user(conn, user_id))


async def refresh_user(conn: Connection, user_id: str) -> bool:
    """Put the user's summary together anew; False when it would say the same."""
    parts = await store.of_sessions(conn, user_id, _USER_SESSIONS)
    if not parts:
        return False
    share = MAX_CHARACTERS // min(len(parts), 6)
    lines = [f"[{p.to_time:%Y-%m-%d}] {clip(p.text, share)}" for p in parts]
    text = clip("\n".join(lines), MAX_CHARACTERS)
    previous = await store.latest(conn, user_id, "")
    if previous is not None and previous.text == text:
        return False
    return await store.insert(
        conn, user_id, "", previous.version if previous else 0, text,
        sum(p.covered_turns for p in parts), max(p.covered_until for p in parts),
        min(p.from_time for p in parts), max(p.to_time for p in parts),
        Origin.LLM if all(p.origin is Origin.LLM for p in parts) else Origin.RULES,
    )  # fmt: skip


async def _basis(
    conn: Connection, tenant_id: str, user_id: str, session_id: str, until: int = 2**62
) -> _Basis:
    """What the next version of a session's summary is made from, of turns up to `until`."""
    previous = await store.latest(conn, user_id, session_id)
    covered = previous.covered_until if previous else 0
    # Equal means unchanged: nothing else of a turn is used here, nor stays as it is meanwhile.
    turns = tuple(
        replace(t, digested=False, attempts=0)
        for t in await turn_store.between(conn, user_id, session_id, covered, until)
    )
    return _Basis(previous, turns, await tellable(conn, tenant_id, user_id, turns))


async def _add(
    conn: Connection, user_id: str, session_id: str, basis: _Basis, text: str, origin: Origin
) -> bool:
    """Store the version that follows `basis.previous`; False when somebody else has."""
    previous, turns = basis.previous, basis.turns
    times = [t.event_time for t in turns]
    return await store.insert(
        conn, user_id, session_id, previous.version if previous else 0, text,
        (previous.covered_turns if previous else 0) + len(turns), turns[-1].sequence,
        min([previous.from_time] if previous else times),
        max([*times, previous.to_time] if previous else times), origin,
    )  # fmt: skip


def by_rules(previous: str, turns: Sequence[Turn]) -> str:
    """The notes of the turns behind the previous summary; the oldest lines go first."""
    lines = [line for line in previous.split("\n") if line]
    for number, turn in enumerate(turns):
        note = notes.note_of(turn, turns[:number])
        if note is not None and note.note not in lines:
            lines.append(note.note)
    while len(lines) > 1 and sum(map(len, lines)) > _RULES_CHARACTERS:
        lines.pop(0)
    return clip_lines(lines)


def clip_lines(lines: Sequence[str]) -> str:
    """Lines within the limit of a summary."""
    return "\n".join(clip(line, MAX_CHARACTERS // 2) for line in lines)[:MAX_CHARACTERS]


def _rendered(turn: Turn) -> str:
    parts = []
    for message in turn.messages:
        if message.role not in (Role.USER, Role.ASSISTANT):
            continue
        words = own_words(message.text)
        if words and not safety.is_injection(words):
            who = "user" if message.role is Role.USER else "assistant"
            parts.append(f"{who}: {clip(words, 1_500)}")
    return f"[{turn.event_time:%Y-%m-%d %H:%M}]\n" + "\n".join(parts) if parts else ""


def _safe(text: str) -> str:
    """A model's summary without sentences that may not be kept."""
    if not safety.is_injection(text) and not safety.is_sensitive(text):
        return text
    kept = [
        s.text for s in sentences(text)
        if not safety.is_injection(s.text) and not safety.is_sensitive(s.text)
    ]  # fmt: skip
    return " ".join(kept)
