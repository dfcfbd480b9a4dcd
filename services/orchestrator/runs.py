"""Runs: one turn from its claim to its end, idempotent by request_id, cancelled with its caller."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common import context, errors, logs
from services.common.db import Database
from services.common.deadlines import Deadline
from services.common.errors import DomainError
from services.common.status import item_of
from services.orchestrator import budget, records, session_store, store
from services.orchestrator.domain import History, TurnInput
from services.orchestrator.endings import SUPERSEDED, End, Endings
from services.orchestrator.events import EventLog
from services.orchestrator.pipeline import Pipeline
from services.orchestrator.steps.reason import RunFailedError
from services.orchestrator.steps.save_memory import save_pending
from services.orchestrator.turn import Turn

_POLL_S = 0.1
_LAST_WORD_S = 5.0


@dataclass(frozen=True)
class Rules:
    """How runs are bounded. Times in seconds."""

    timeout_s: float = 120.0
    lease_s: float = 30.0
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

    def __init__(self, db: Database, endings: Endings, pipeline: Pipeline, rules: Rules) -> None:
        self._db = db
        self._endings = endings
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
        """Store the end, then tell it: what is promised holds by then."""
        promised = [save_pending(turn)] if error is None and turn.save_state == "pending" else []
        why = await self._endings.store(_end_of(turn, claim, state, error, promised), _wait_s(turn))
        if not why:
            turn.report_all(promised)
        elif error is None:
            _degrade_not_stored(turn, why)
        turn.log.emit(records.completed(turn, state, error))

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


def _wait_s(turn: Turn) -> float:
    """How long the answer waits until its end is stored; without a caller as long as anybody's."""
    left = turn.deadline.remaining()
    return min(_LAST_WORD_S, left) if left > 0 else _LAST_WORD_S


def _end_of(
    turn: Turn,
    claim: _Claim,
    state: str,
    error: common_pb2.ItemError | None,
    promised: Sequence[common_pb2.Degradation],
) -> End:
    """The end as it will be once it is stored."""
    completed = records.completed(turn, state, error, promised)
    done = state == "completed"
    return End(
        ending=store.Ending(
            run_id=claim.run_id,
            attempt=claim.attempt,
            state=state,
            record=records.record(turn, error, promised).SerializeToString(),
            response=None,
            events=records.with_completed(turn, completed, promised),
            prompt=records.prompt(turn),
            pending=records.pending(turn) if done else None,
        ),
        user_id=turn.input.user_id,
        session_id=turn.input.session_id,
        lines=records.checkpoint_lines(turn) if done else (),
        prompt_tokens=turn.usage.prompt_tokens,
        completion_tokens=turn.usage.completion_tokens,
    )


def _degrade_not_stored(turn: Turn, why: str) -> None:
    """Say what became of an answer whose end is not stored."""
    zh = turn.input.language == "zh"
    if why == SUPERSEDED:
        message = (
            "这次请求已由另一次尝试接手，或已被删除：本轮没有存档"
            if zh
            else "another attempt of this request, or an erasure, came first: not stored"
        )
    else:
        message = (
            "本轮还没有存档：请用同一个 request_id 再发一次"
            if zh
            else "the run is not stored yet: send it again with the same request_id"
        )
    turn.degrade(
        common_pb2.DEGRADATION_KIND_RUN_NOT_STORED,
        "orchestrator",
        message,
        reason=why,
        # Without its row nothing will save later what memory did not take.
        save_state="failed" if turn.save_state == "pending" else turn.save_state,
    )
