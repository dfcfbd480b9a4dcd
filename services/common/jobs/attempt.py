"""One attempt at one job: claim it, run its handler, write down how it went."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from services.common import errors, logs
from services.common.db import Connection, Database
from services.common.deadlines import Deadline
from services.common.grpc.client import service_call
from services.common.jobs.model import (
    MAX_MESSAGE_CHARS,
    Forget,
    Handler,
    JobCancelled,
    JobRecord,
    LeaseLost,
    OnFailed,
    Outcome,
    Quarantine,
    Retry,
)
from services.common.jobs.store import JobStore
from services.common.settings import JobSettings
from services.common.telemetry import Metrics

_TIDY_EVERY = 64
"""One job in so many also removes its tenant's old jobs."""


@dataclass(frozen=True)
class JobRun:
    """What a handler sees of its job. Calls that take no connection write at once, in short
    transactions of their own: never make them while holding a connection. ``result``: what earlier
    attempts have kept, where the kind resumes."""

    tenant_id: str
    job_id: str
    kind: str
    subject: Mapping[str, str]
    attempt: int
    lease: str
    db: Database
    store: JobStore
    result: Mapping[str, str] = field(default_factory=dict)

    async def progress(self, done: int, total: int | None = None) -> None:
        """Report units done, and how many there are in all."""
        async with self.db.tenant(self.tenant_id) as conn:
            if not await self.store.progress(conn, self.job_id, self.lease, done, total):
                raise LeaseLost(self.job_id)

    async def item_error(self, item_id: str, reason: str, message: str) -> None:
        """Record that one item failed while the job goes on; at most 100 are kept."""
        async with self.db.tenant(self.tenant_id) as conn:
            await self.item_error_in(conn, item_id, reason, message)

    async def item_error_in(
        self, conn: Connection, item_id: str, reason: str, message: str
    ) -> None:
        """``item_error`` as part of the transaction that writes the item's effect."""
        item = {
            "item_id": item_id,
            "reason": reason,
            "message": message[:MAX_MESSAGE_CHARS],
        }
        if not await self.store.item_error(conn, self.job_id, self.lease, item):
            raise LeaseLost(self.job_id)

    async def keep(self, conn: Connection, result: Mapping[str, str]) -> None:
        """Keep the result so far, as part of the transaction that writes the effect it counts: the
        next attempt of a kind that resumes gets it as ``result``. Fences as ``fence`` does."""
        if not await self.store.keep(conn, self.job_id, self.lease, result):
            raise LeaseLost(self.job_id)

    async def stop_if_cancelled(self) -> None:
        """Raise ``JobCancelled`` once somebody asked to cancel; for loops, between two batches."""
        if await self.cancelled():
            raise JobCancelled(self.job_id)

    async def cancelled(self) -> bool:
        """True once somebody asked to cancel; tidy up, then stop by raising ``JobCancelled``."""
        async with self.db.tenant(self.tenant_id) as conn:
            job = await self.store.get(conn, self.job_id)
        return job is None or job.cancel_requested or job.ended

    async def fence(self, conn: Connection) -> None:
        """Call first in a transaction that writes the job's effect: raises LeaseLost when another
        worker has the job now, and keeps it from being taken over until the transaction ends."""
        if not await self.store.holds(conn, self.job_id, self.lease):
            raise LeaseLost(self.job_id)


@dataclass(frozen=True)
class Registered:
    """A handler, the longest an attempt of it may take, in seconds, and what a failed job means.
    ``resumes``: an attempt goes on with what earlier ones have left, so what they noted of their
    items stays."""

    handler: Handler
    timeout_s: float
    resumes: bool = False
    forget: Forget | None = None
    on_failed: OnFailed | None = None


class Attempts:
    """Runs attempts. ``handlers`` maps a kind to what does it."""

    def __init__(
        self,
        db: Database,
        store: JobStore,
        handlers: Mapping[str, Registered],
        settings: JobSettings,
        service_key: str,
        metrics: Metrics,
    ) -> None:
        self._db = db
        self._store = store
        self._handlers = handlers
        self._settings = settings
        self._service_key = service_key
        self._metrics = metrics
        self._unwritten: set[str] = set()
        self._log = logs.get(__name__)

    async def run(self, tenant_id: str, job_id: str) -> datetime | None:
        """One attempt. Returns when the next is due, or None where there is none to come.

        Raises only CancelledError (the worker stops) and DomainError (the database is away: the
        lease runs out and the job is taken up again).
        """
        lease = str(uuid.uuid4())
        resuming = [kind for kind, known in self._handlers.items() if known.resumes]
        # This process could not write down how an attempt ended; that is no worker's death.
        lost = job_id not in self._unwritten
        async with self._db.tenant(tenant_id) as conn:
            job = await self._store.claim(conn, job_id, lease, resuming, lost=lost)
        self._unwritten.discard(job_id)
        if job is None:
            return None
        try:
            return await self._attempt(job, lease)
        except errors.DomainError:
            self._unwritten.add(job_id)
            raise

    async def _attempt(self, job: JobRecord, lease: str) -> datetime | None:
        tenant_id, job_id = job.tenant_id, job.job_id
        started = time.perf_counter()
        outcome: Outcome | None = None
        label = "lost"
        try:
            self._stop_killer(job)
            result = await self._handle(job, lease)
            async with self._db.tenant(tenant_id) as conn:
                done = await self._store.succeed(conn, job_id, lease, result)
                if uuid.UUID(job_id).int % _TIDY_EVERY == 0:
                    await self._tidy(conn)
            label = "succeeded" if done else "lost"
        except LeaseLost:
            pass
        except JobCancelled:
            async with self._db.tenant(tenant_id) as conn:
                await self._store.cancel_leased(conn, job_id, lease)
            label = "cancelled"
        except asyncio.CancelledError:
            if not await self._release(job, lease):
                self._unwritten.add(job_id)
            raise
        except Exception as error:  # noqa: BLE001 - the job runner: all ends in a state
            outcome = outcome_of(error)
            self._tell_failure(job, outcome, error)
        due = None
        if outcome is not None:
            due = await self._after_failure(job, lease, outcome)
            label = "failed" if due is None else "retried"
        self._tell(job, label, time.perf_counter() - started)
        return due

    def _stop_killer(self, job: JobRecord) -> None:
        """Ends a job whose workers have died of it as often as it may fail."""
        if job.failures >= self._settings.max_failures:
            raise Quarantine("INTERNAL", "The worker died in every attempt.")

    async def _handle(self, job: JobRecord, lease: str) -> Mapping[str, str]:
        registered = self._handlers.get(job.kind)
        if registered is None:
            # A newer process may have queued it; one of those will take it up.
            raise Retry("UNIMPLEMENTED", message=f"this worker does not know {job.kind}")
        run = JobRun(
            tenant_id=job.tenant_id,
            job_id=job.job_id,
            kind=job.kind,
            subject=job.subject,
            attempt=job.attempts,
            lease=lease,
            db=self._db,
            store=self._store,
            result=job.result,
        )
        deadline = Deadline.after(registered.timeout_s)
        with service_call(
            job.tenant_id,
            self._service_key,
            rpc=f"job/{job.kind}",
            request_id=job.job_id,
            deadline=deadline,
        ):
            async with asyncio.timeout(registered.timeout_s):
                return await registered.handler(run) or {}

    async def _tidy(self, conn: Connection) -> None:
        """Remove the tenant's old jobs with what was kept for them."""
        for kind, subject in await self._store.purge(conn, self._settings.keep_days):
            known = self._handlers.get(kind)
            if known is not None and known.forget is not None:
                await known.forget(conn, subject)

    async def _after_failure(self, job: JobRecord, lease: str, outcome: Outcome) -> datetime | None:
        now = datetime.now(UTC)
        window_over = (
            job.first_failure_time is not None
            and (now - job.first_failure_time).total_seconds() > self._settings.retry_window_s
        )
        used_up = not outcome.retryable and job.failures + 1 >= self._settings.max_failures
        async with self._db.tenant(job.tenant_id) as conn:
            if outcome.terminal or used_up or (outcome.retryable and window_over):
                failed = await self._store.fail(conn, job.job_id, lease, outcome)
                registered = self._handlers.get(job.kind)
                if failed and registered is not None and registered.on_failed is not None:
                    await registered.on_failed(conn, job)
                return None
            due = now + timedelta(seconds=self._wait_s(job, outcome))
            planned = await self._store.retry(conn, job.job_id, lease, outcome, due)
            return due if planned else None

    def _wait_s(self, job: JobRecord, outcome: Outcome) -> float:
        base, longest = self._settings.backoff_base_s, self._settings.backoff_max_s
        wait = min(longest, base * 2.0 ** min(job.attempts - 1, 20))
        # A provider that says when to come back knows better, within reason.
        return min(max(wait, outcome.after_s or 0.0), max(longest, 3600.0))

    async def _release(self, job: JobRecord, lease: str) -> bool:
        """Give a job back while this task is being cancelled; False where it could not be written
        down, and its lease runs out."""

        async def give_back() -> bool:
            try:
                async with self._db.tenant(job.tenant_id) as conn:
                    await self._store.release(conn, job.job_id, lease)
            except errors.DomainError as error:
                self._log.warning("job_not_released", job_id=job.job_id, reason=error.reason)
                return False
            return True

        return await asyncio.shield(asyncio.ensure_future(give_back()))

    def _tell_failure(self, job: JobRecord, outcome: Outcome, error: Exception) -> None:
        expected = isinstance(error, Retry | Quarantine | errors.DomainError | TimeoutError)
        self._log.warning(
            "job_attempt_failed",
            job_id=job.job_id,
            kind=job.kind,
            tenant=job.tenant_id,
            attempt=job.attempts,
            reason=outcome.reason,
            retryable=outcome.retryable,
            exc_info=None if expected else error,
        )

    def _tell(self, job: JobRecord, label: str, seconds: float) -> None:
        self._metrics.jobs.labels(job.kind, label).inc()
        self._metrics.job_seconds.labels(job.kind).observe(seconds)
        self._log.info(
            "job",
            job_id=job.job_id,
            kind=job.kind,
            tenant=job.tenant_id,
            attempt=job.attempts,
            outcome=label,
            ms=round(seconds * 1000, 1),
        )


def outcome_of(error: Exception) -> Outcome:
    """How an attempt that ended with ``error`` goes on.

    Busy or absent dependencies (429, 5xx, timeouts, refused connections) are retryable; everything
    else is tried a bounded number of times. Messages never contain the exception's text.
    """
    if isinstance(error, Retry):
        return Outcome(error.reason, error.message, retryable=True, after_s=error.after_s)
    if isinstance(error, Quarantine):
        return Outcome(error.reason, error.message, retryable=False, terminal=True)
    if isinstance(error, errors.DomainError):
        return Outcome(
            error.reason,
            error.message[:MAX_MESSAGE_CHARS],
            retryable=error.retryable,
            after_s=error.retry_after_s,
        )
    if isinstance(error, TimeoutError):
        return Outcome("DEADLINE_EXCEEDED", "The attempt took too long.", retryable=True)
    if isinstance(error, OSError):
        return Outcome("DEPENDENCY_UNAVAILABLE", type(error).__name__, retryable=True)
    # HTTP clients put the status on their exceptions; no need to know which client it was.
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and (status in (408, 409, 425, 429) or status >= 500):
        return Outcome("DEPENDENCY_UNAVAILABLE", f"The provider answered {status}.", retryable=True)
    return Outcome("INTERNAL", type(error).__name__, retryable=False)
