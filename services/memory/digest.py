"""Digestion: fresh turns of a session become facts and notes, in order, each exactly once.

The model is called without a connection; one transaction then writes everything of a batch and
marks its turns. A batch whose answer is unreadable is tried turn by turn, so that one bad turn
never holds up the others; a turn that stays unreadable is quarantined with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.common import errors
from services.common.db import Connection
from services.common.jobs import JobRun, Quarantine, Retry
from services.common.llm import Completion
from services.memory.apply import apply
from services.memory.deps import Deps
from services.memory.domain import Turn
from services.memory.extraction.extractor import Extractor, GarbageAnswer, Outcome
from services.memory.store import sessions as session_store
from services.memory.store import summaries as summary_store
from services.memory.store import turns as turn_store
from services.memory.store import usage as usage_store
from services.memory.tellable import tellable

_CONTEXT_TURNS = 3
_MAX_CHARACTERS = 12_000
_REFUSED_FOR_ALL = frozenset({"401", "402", "403", "404"})


@dataclass(frozen=True)
class Digester:
    """`llm` is None without a model; `rules` are used then, and when the budget is used up."""

    deps: Deps
    rules: Extractor
    llm: Extractor | None = None

    async def handle(self, run: JobRun) -> dict[str, str]:
        """Job handler: digest everything fresh of the subject's session.

        Ends the job as FAILED when turns were quarantined, so that it stands among the dead
        letters.
        """
        counts = await self.digest(run)
        quarantine_if_any(counts)
        return counts

    async def digest(self, run: JobRun) -> dict[str, str]:
        """Digest everything fresh of the subject's session; returns counts."""
        user_id, session_id = run.subject["user_id"], run.subject["session_id"]
        counts = {"turns": 0, "facts": 0, "notes": 0, "quarantined": 0}
        while True:
            await run.stop_if_cancelled()
            batch, earlier, stopped = await self._next(run.tenant_id, user_id, session_id)
            if not batch:
                break
            await self._digest(run, user_id, batch, earlier, stopped, counts)
            await run.progress(counts["turns"])
        return {key: str(value) for key, value in counts.items()}

    async def _next(
        self, tenant_id: str, user_id: str, session_id: str
    ) -> tuple[list[Turn], list[Turn], bool]:
        """(turns of the next batch, turns before them, whether the budget stops the model)."""
        async with self.deps.db.tenant(tenant_id) as conn:
            turns = await turn_store.undigested(
                conn, user_id, session_id, self.deps.settings.extract_batch
            )
            if not turns:
                return [], [], False
            first = turns[0].sequence
            before = await turn_store.between(
                conn, user_id, session_id, first - 1 - _CONTEXT_TURNS, first - 1
            )
            earlier = await tellable(conn, tenant_id, user_id, before)
            stopped = self.llm is not None and "extract" in await usage_store.exhausted_layers(conn)
        return _fit(turns), list(earlier), stopped

    async def _digest(
        self,
        run: JobRun,
        user_id: str,
        batch: Sequence[Turn],
        earlier: Sequence[Turn],
        stopped: bool,
        counts: dict[str, int],
    ) -> None:
        extractor = self.rules if stopped or self.llm is None else self.llm
        try:
            outcome = await self._extract(run, extractor, batch, earlier)
        except (GarbageAnswer, errors.DomainError) as error:
            reason = await self._unreadable(run, error)
            if len(batch) > 1:
                before = list(earlier)
                for turn in batch:
                    await self._digest(
                        run, user_id, [turn], before[-_CONTEXT_TURNS:], stopped, counts
                    )
                    before.append(turn)
                return
            if await self._count_attempt(run, user_id, batch[0], reason):
                counts["quarantined"] += 1
                counts["turns"] += 1
            return
        await self._commit(run, user_id, batch, earlier, outcome, stopped, counts)

    async def _extract(
        self, run: JobRun, extractor: Extractor, batch: Sequence[Turn], earlier: Sequence[Turn]
    ) -> Outcome:
        try:
            return await extractor.extract(batch, earlier)
        except errors.DomainError as error:
            if error.reason == "PROVIDER_REFUSED":
                status = error.metadata.get("provider_status", "")
                if status in _REFUSED_FOR_ALL:
                    # A wrong key or model is nobody's turn's fault: wait for the operator.
                    raise Retry("PROVIDER_REFUSED", 60.0, f"provider status {status}") from error
                raise
            await self._use(run.tenant_id, None, failed=1)
            raise Retry(error.reason, error.retry_after_s, error.message) from error

    async def _unreadable(self, run: JobRun, error: Exception) -> str:
        completion = error.completion if isinstance(error, GarbageAnswer) else None
        await self._use(run.tenant_id, completion, failed=1)
        return "MODEL_FAILED" if completion is not None else "PROVIDER_REFUSED"

    async def _count_attempt(self, run: JobRun, user_id: str, turn: Turn, reason: str) -> bool:
        limit = self.deps.settings.extract_attempts
        async with self.deps.db.tenant(run.tenant_id) as conn:
            await run.fence(conn)
            ended = await turn_store.count_attempt(conn, user_id, turn.turn_id, limit, reason)
        if ended:
            message = f"No readable answer in {limit} attempts; the turn itself is kept."
            await run.item_error(turn.turn_id, reason, message)
        return ended

    async def _use(self, tenant_id: str, completion: Completion | None, *, failed: int = 0) -> None:
        async with self.deps.db.tenant(tenant_id) as conn:
            await usage_store.add(conn, "extract", failed=failed, **costs(self.deps, completion, 1))

    async def _commit(
        self,
        run: JobRun,
        user_id: str,
        batch: Sequence[Turn],
        earlier: Sequence[Turn],
        outcome: Outcome,
        stopped: bool,
        counts: dict[str, int],
    ) -> None:
        """Everything of a batch in one transaction; nothing, to be read again without it, when
        something that was shown with it was deleted meanwhile."""
        tenant_id, session_id = run.tenant_id, batch[0].session_id
        ids = [t.turn_id for t in batch]
        async with self.deps.db.tenant(tenant_id) as conn:
            # The user's row first: an erasure takes the two locks in the same order.
            there = await turn_store.lock_user(conn, user_id)
            await run.fence(conn)
            if outcome.completion is not None or stopped:
                calls = 1 if outcome.completion is not None else 0
                await usage_store.add(
                    conn, "extract", stopped=int(stopped),
                    **costs(self.deps, outcome.completion, calls),
                )  # fmt: skip
            if not there:
                return
            alive = await turn_store.lock_fresh(conn, user_id, ids)
            shown = await turn_store.get(conn, user_id, [t.turn_id for t in earlier])
            told = await tellable(conn, tenant_id, user_id, shown)
            if len(alive) + len(told) < len(ids) + len(earlier):
                return
            applied = await apply(conn, tenant_id, user_id, outcome.extraction, alive)
            await turn_store.mark_digested(conn, user_id, ids)
            await turn_store.bump_index(conn, user_id)
            await self.deps.enqueue_embed(conn, tenant_id, user_id)
            await self._summary_if_due(run, conn, user_id, session_id)
        self.deps.wake()
        counts["turns"] += len(alive)
        counts["facts"] += applied.facts
        counts["notes"] += applied.notes

    async def _summary_if_due(
        self, run: JobRun, conn: Connection, user_id: str, session_id: str
    ) -> None:
        every = (await usage_store.settings(conn)).summary_every
        session = await session_store.get(conn, user_id, session_id)
        latest = await summary_store.latest(conn, user_id, session_id)
        covered = latest.covered_until if latest else 0
        if session is None or session.turns - covered < every:
            return
        await self.deps.enqueue_session(conn, "summary", run.tenant_id, user_id, session_id)


def quarantine_if_any(counts: dict[str, str]) -> None:
    """Raise Quarantine when a digest gave up on turns."""
    given_up = int(counts.get("quarantined", "0"))
    if given_up:
        raise Quarantine("MODEL_FAILED", f"{given_up} of {counts['turns']} turns are quarantined.")


def costs(deps: Deps, completion: Completion | None, calls: int) -> dict[str, int]:
    """Usage of one model call as the store counts it."""
    if completion is None:
        return {"calls": calls}
    settings = deps.settings
    # Prices are per million tokens, so tokens times price is in millionths.
    cost = (
        completion.prompt_tokens * settings.prompt_price
        + completion.completion_tokens * settings.completion_price
    )
    return {
        "calls": calls,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "cost_micros": round(cost),
    }


def _fit(turns: Sequence[Turn]) -> list[Turn]:
    """The first turns that fit one call together; at least one."""
    kept: list[Turn] = []
    size = 0
    for turn in turns:
        size += len(turn.text)
        if kept and size > _MAX_CHARACTERS:
            break
        kept.append(turn)
    return kept
