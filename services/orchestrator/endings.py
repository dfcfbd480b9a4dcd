"""How the end of a run is written down: at once, or as soon as the database answers again."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace

from services.common import context, logs
from services.common.db import Connection, Database
from services.common.deadlines import Deadline
from services.common.errors import DomainError
from services.common.jobs import Jobs
from services.orchestrator import budget, session_store, store
from services.orchestrator.domain import HistoryLine

SAVE_JOB = "save_turn"
COMPACT_JOB = "compact_session"
PURGE_JOB = "purge_runs"
SUPERSEDED = "SUPERSEDED"
"""Why an end is not stored although the database answers: another attempt has the run by now, or
it was erased."""
FAILED = "INTERNAL"
"""Why an end will not be stored: what the database says of it would be the same the next time."""
_TRY_S = 5.0
_FIRST_PAUSE_S = 0.1
_PAUSE_S = 2.0
_MOST_WAITING = 256
_PURGE_EVERY_S = 86_400.0


async def purge_later(conn: Connection, jobs: Jobs) -> None:
    """See to it that the tenant's old runs and sessions are looked for within a day. The job queues
    its next one as long as anything is stored, so that a tenant that stops is cleared too.
    """
    # Runs of a tenant end side by side: they must not wait for each other's row.
    if not await jobs.waits(conn, PURGE_JOB, PURGE_JOB):
        await jobs.enqueue(conn, PURGE_JOB, {}, dedupe=PURGE_JOB, delay_s=_PURGE_EVERY_S)


@dataclass(frozen=True)
class End:
    """The end of one run and what must be stored together with it."""

    ending: store.Ending
    user_id: str
    session_id: str
    lines: tuple[HistoryLine, ...]
    prompt_tokens: int
    completion_tokens: int


class Endings:
    """Stores ends. One that the database does not take waits in this process and is tried until it
    is stored or the process ends; ends that wait are bounded in number.
    """

    def __init__(self, db: Database, jobs: Jobs, compact_after: int) -> None:
        self._db = db
        self._jobs = jobs
        self._compact_after = compact_after
        self._waiting: set[asyncio.Task[bool]] = set()
        self._log = logs.get(__name__)

    async def store(self, end: End, within_s: float) -> str:
        """Empty once the end is stored; after `within_s` why it is not. It goes on being tried,
        unless that is hopeless."""
        task = asyncio.create_task(self._until_stored(end), name=f"end-{end.ending.run_id}")
        self._waiting.add(task)
        task.add_done_callback(self._tried)
        done, _ = await asyncio.wait({task}, timeout=within_s)
        if done and not task.cancelled():
            if task.exception() is not None:
                return FAILED
            return "" if task.result() else SUPERSEDED
        if len(self._waiting) > _MOST_WAITING:
            task.cancel()
        self._log.warning("run_not_stored", run_id=end.ending.run_id, waiting=len(self._waiting))
        return "DATABASE_UNAVAILABLE"

    async def close(self, within_s: float = _TRY_S) -> None:
        """Give what waits a last chance, then let it go."""
        if not self._waiting:
            return
        _, left = await asyncio.wait(self._waiting, timeout=within_s)
        for task in left:
            self._log.warning("run_lost", task=task.get_name())
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _tried(self, task: asyncio.Task[bool]) -> None:
        """The last of an end that waited: one that cannot be stored does not go unseen."""
        self._waiting.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.error("run_lost", task=task.get_name(), exc_info=error)

    async def _until_stored(self, end: End) -> bool:
        """True once it is stored, False where the run is not ours any more. Raises what the
        database or the code has against it, other than that it cannot be stored now."""
        pause = _FIRST_PAUSE_S
        while True:
            # The caller's deadline may be over; the end is written down nevertheless.
            call = replace(context.current(), deadline=Deadline.after(_TRY_S))
            try:
                with context.bound(call):
                    return await self._try(end)
            except DomainError as error:
                self._log.info("end_not_stored_yet", run_id=end.ending.run_id, reason=error.reason)
            await asyncio.sleep(pause)
            pause = min(_PAUSE_S, 2 * pause)

    async def _try(self, end: End) -> bool:
        ending = end.ending
        async with self._db.tenant() as conn:
            if not await store.end_run(conn, ending):
                # The answer to an earlier commit may have got lost.
                return await store.ended_by(conn, ending.run_id, ending.attempt)
            await budget.count(conn, end.prompt_tokens, end.completion_tokens)
            await purge_later(conn, self._jobs)
            if ending.state != "completed":
                return True
            run_id = ending.run_id
            if ending.pending is not None:
                await self._jobs.enqueue(conn, SAVE_JOB, {"run_id": run_id}, dedupe=run_id)
            if end.session_id:
                opened = await session_store.append(
                    conn, end.user_id, end.session_id, run_id, end.lines
                )
                if opened > self._compact_after:
                    # A hash: queues, locks and their logs must not name users.
                    name = f"{end.user_id}\x1f{end.session_id}"
                    key = hashlib.sha256(name.encode()).hexdigest()[:32]
                    await self._jobs.enqueue(
                        conn,
                        COMPACT_JOB,
                        {"user_id": end.user_id, "session_id": end.session_id},
                        lock=key,
                        dedupe=key,
                    )
        return True
