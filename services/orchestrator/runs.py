"""Runs: one turn from its claim to its end, idempotent by request_id, cancelled with its caller."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common import context, errors, logs
from services.common.db import Database
from services.common.deadlines import Deadline
from services.common.errors import DomainError
from services.common.jobs import Jobs
from services.common.status import item_of
from services.orchestrator import budget, records, session_store, store
from services.orchestrator.domain import History, TurnInput
from services.orchestrator.events import EventLog
from services.orchestrator.pipeline import Pipeline
from services.orchestrator.steps.reason import RunFailedError
from services.orchestrator.turn import Turn

SAVE_JOB = "save_turn"
COMPACT_JOB = "compact_session"
PURGE_JOB = "purge_runs"
_POLL_S = 0.1
_PURGE_DELAY_S = 3_600.0
_LAST_WORD_S = 5.0


@dataclass(frozen=True)
class Rules:
    """How runs are bounded. Times in seconds."""

    timeout_s: float = 120.0
    lease_s: float = 30.0
    compact_after: int = 40
    daily_tokens: int = 0


@dataclass(frozen=True)
class _Claim:
    run_id: str
    attempt: str
    history: History
    events: bytes | None = None
    busy: bool = False
    used_up: bool = False


class Runs:
    """Starts, follows, replays and ends runs."""

    def __init__(self, db: Database, jobs: Jobs, pipeline: Pipeline, rules: Rules) -> None:
        self._db = db
        self._jobs = jobs
        self._pipeline = pipeline
        self._rules = rules
        self._log = logs.get(__name__)

    async def stream(
        self, asked: TurnInput, request_id: str, input_hash: bytes, bad_user: str = ""
    ) -> AsyncGenerator[pb.ChatEvent, None]:
        """The events of the turn, live or replayed. Closing the iterator cancels a live run.

        Raises REQUEST_ID_REUSED for another input under the same request_id.
        """
        deadline = self._deadline()
        claim = await self._claim(asked, request_id, input_hash, deadline)
        if claim.events is not None:
            for event in records.replayed(claim.events):
                yield event
            return
        turn = Turn(
            input=asked,
            log=EventLog(claim.run_id),
            deadline=deadline,
            request_id=request_id,
            history=claim.history,
            model_allowed=not claim.used_up,
        )
        if bad_user:
            turn.degrade(
                common_pb2.DEGRADATION_KIND_MEMORY_SKIPPED, "orchestrator", f"user_id {bad_user}"
            )
        task = asyncio.create_task(self._execute(turn, claim), name=f"run-{claim.run_id}")
        task.add_done_callback(lambda _: turn.log.close())
        try:
            async for event in turn.log.follow():
                yield event
            await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def context(self, asked: TurnInput) -> Turn:
        """Gather and assemble for BuildContext: nothing is stored and no model is called."""
        history = History(lines=asked.history)
        if asked.session_id:
            async with self._db.tenant() as conn:
                stored = await session_store.load(conn, asked.user_id, asked.session_id)
            history = stored if stored.stored else history
        turn = Turn(input=asked, log=EventLog(""), deadline=self._deadline(), history=history)
        await self._pipeline.gather(turn, announce=False)
        return turn

    def _deadline(self) -> Deadline:
        own = Deadline.after(self._rules.timeout_s)
        callers = context.current().deadline
        return own if callers is None else callers.slice(self._rules.timeout_s, margin_s=0.05)

    async def _claim(
        self, asked: TurnInput, request_id: str, input_hash: bytes, deadline: Deadline
    ) -> _Claim:
        while True:
            claim = await self._try_claim(asked, request_id, input_hash)
            if not claim.busy:
                return claim
            if deadline.expired:
                raise errors.deadline_exceeded("another call with this request_id")
            await asyncio.sleep(_POLL_S)

    async def _try_claim(self, asked: TurnInput, request_id: str, input_hash: bytes) -> _Claim:
        run_id, attempt = str(uuid.uuid4()), str(uuid.uuid4())
        async with self._db.tenant() as conn:
            is_new = await store.insert_run(
                conn,
                run_id=run_id,
                attempt=attempt,
                request_id=request_id,
                input_hash=input_hash,
                user_id=asked.user_id,
                session_id=asked.session_id,
                lease_s=self._rules.lease_s,
            )
            if not is_new:
                row = await store.lock_run(conn, request_id)
                if row is None:
                    return _Claim("", "", History(), busy=True)
                if row.input_hash != input_hash:
                    raise errors.request_id_reused()
                run_id = row.run_id
                if row.state == "completed" and row.events is not None:
                    return _Claim(run_id, "", History(), events=row.events)
                if row.state == "running" and row.leased:
                    return _Claim(run_id, "", History(), busy=True)
                await store.take_over(conn, run_id, attempt, self._rules.lease_s)
            history = History(lines=asked.history)
            if asked.session_id:
                stored = await session_store.load(conn, asked.user_id, asked.session_id)
                history = stored if stored.stored else history
            used_up = await budget.used_up(conn, self._rules.daily_tokens)
        return _Claim(run_id, attempt, history, used_up=used_up)

    async def _execute(self, turn: Turn, claim: _Claim) -> None:
        lease = asyncio.create_task(self._keep_lease(claim))
        state, failure = "failed", errors.internal()
        try:
            async with asyncio.timeout(turn.deadline.remaining()):
                await self._pipeline.run(turn)
            state = "completed"
        except RunFailedError as error:
            failure = error.failure
        except DomainError as error:
            failure = error
        except TimeoutError:
            begun = [step.step for step in turn.steps]
            state, failure = "cancelled", errors.deadline_exceeded(begun[-1] if begun else "start")
        except asyncio.CancelledError:
            state, failure = "cancelled", DomainError("CANCELLED", "The caller went away.")
            raise
        finally:
            lease.cancel()
            error_item = None if state == "completed" else item_of(failure)
            # Whatever ended the run, its end is written down, also while this task is being
            # cancelled.
            await asyncio.shield(asyncio.ensure_future(self._end(turn, claim, state, error_item)))

    async def _end(
        self, turn: Turn, claim: _Claim, state: str, error: common_pb2.ItemError | None
    ) -> None:
        completed = pb.Completed(state=records.state_of(state), error=error)
        if error is None:
            completed.response.CopyFrom(records.response(turn))
        # The caller's deadline may be over; the end is written down nevertheless.
        with context.bound(replace(context.current(), deadline=Deadline.after(_LAST_WORD_S))):
            try:
                await self._store_end(turn, claim, state, completed, error)
            except DomainError as failure:
                self._log.warning("run_not_stored", run_id=claim.run_id, reason=failure.reason)
                if error is None:
                    turn.degrade(
                        common_pb2.DEGRADATION_KIND_SAVE_PENDING,
                        "orchestrator",
                        "the run could not be stored",
                        reason=failure.reason,
                    )
                    completed.response.CopyFrom(records.response(turn))
        turn.log.emit(completed)

    async def _store_end(
        self,
        turn: Turn,
        claim: _Claim,
        state: str,
        completed: pb.Completed,
        error: common_pb2.ItemError | None,
    ) -> None:
        events = records.with_completed(turn, completed)
        ending = store.Ending(
            run_id=claim.run_id,
            attempt=claim.attempt,
            state=state,
            record=records.record(turn, error).SerializeToString(),
            response=None,
            events=events,
            prompt=records.prompt(turn),
            pending=records.pending(turn) if state == "completed" else None,
        )
        asked = turn.input
        async with self._db.tenant() as conn:
            if not await store.end_run(conn, ending):
                return
            await budget.count(conn, turn.usage.prompt_tokens, turn.usage.completion_tokens)
            if state != "completed":
                return
            if ending.pending is not None:
                await self._jobs.enqueue(
                    conn, SAVE_JOB, {"run_id": claim.run_id}, dedupe=claim.run_id
                )
            if asked.session_id:
                lines = records.checkpoint_lines(turn)
                opened = await session_store.append(
                    conn, asked.user_id, asked.session_id, claim.run_id, lines
                )
                if opened > self._rules.compact_after:
                    # A hash: queues, locks and their logs must not name users.
                    name = f"{asked.user_id}\x1f{asked.session_id}"
                    key = hashlib.sha256(name.encode()).hexdigest()[:32]
                    await self._jobs.enqueue(
                        conn,
                        COMPACT_JOB,
                        {"user_id": asked.user_id, "session_id": asked.session_id},
                        lock=key,
                        dedupe=key,
                    )
            if claim.run_id.endswith("00"):
                # About one run in 256 looks after old ones; more often would only cost.
                await self._jobs.enqueue(
                    conn, PURGE_JOB, {}, dedupe="purge", delay_s=_PURGE_DELAY_S
                )

    async def _keep_lease(self, claim: _Claim) -> None:
        while True:
            await asyncio.sleep(self._rules.lease_s / 3)
            try:
                async with self._db.tenant() as conn:
                    held = await store.renew(conn, claim.run_id, claim.attempt, self._rules.lease_s)
            except DomainError as error:
                self._log.warning("lease_not_renewed", run_id=claim.run_id, reason=error.reason)
                continue
            if not held:
                return
