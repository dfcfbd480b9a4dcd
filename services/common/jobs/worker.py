"""The worker: procrastinate fetches and leases, ``Attempts`` does the work.

procrastinate's row says only "look at this job"; whatever happens, its task ends by finishing the
row or by moving it to a later time, never by failing it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import procrastinate
import psycopg
from procrastinate import exceptions as queue_errors
from procrastinate.retry import BaseRetryStrategy, RetryDecision

from services.common import errors, logs
from services.common.db import Database
from services.common.db.database import conninfo
from services.common.jobs.attempt import Attempts
from services.common.jobs.model import TASK
from services.common.jobs.store import JobStore
from services.common.settings import DatabaseSettings, JobSettings

_RESTART_S = 1.0


class _Later(Exception):
    """Tells procrastinate to come back at ``at``."""

    def __init__(self, at: datetime) -> None:
        super().__init__(f"again at {at.isoformat()}")
        self.at = at


class _Again(BaseRetryStrategy):
    """Every exception means another look: at the time it names, else soon."""

    def __init__(self, soon_s: float) -> None:
        self._soon_s = soon_s

    def get_retry_decision(
        self, *, exception: BaseException, job: procrastinate.jobs.Job
    ) -> RetryDecision:
        if isinstance(exception, _Later):
            return RetryDecision(retry_at=exception.at)
        if isinstance(exception, asyncio.CancelledError):
            return RetryDecision(retry_at=datetime.now(UTC))
        return RetryDecision(retry_at=datetime.now(UTC) + timedelta(seconds=self._soon_s))


class Worker:
    """Works on the queue of one schema until told to stop."""

    def __init__(
        self,
        db: Database,
        schema: str,
        store: JobStore,
        attempts: Attempts,
        database: DatabaseSettings,
        settings: JobSettings,
    ) -> None:
        self._db = db
        self._schema = schema
        self._store = store
        self._attempts = attempts
        self._database = database
        self._settings = settings
        self._log = logs.get(__name__)

    async def run(self, stop: asyncio.Event, concurrency: int) -> None:
        """Work until ``stop`` is set, then let running jobs finish for a while.

        When the database goes away, the worker starts over until it is back.
        """
        tasks = [
            asyncio.create_task(self._work(stop, concurrency), name="job worker"),
            asyncio.create_task(self._requeue_stalled(stop), name="stalled jobs"),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, stop: asyncio.Event, concurrency: int) -> None:
        while not stop.is_set():
            app = self._app()
            lost = _lost_rows(app)
            try:
                async with app.open_async():
                    await self._until(stop, lost, app, concurrency)
                why = "a job's row could not be moved on" if lost.is_set() else ""
            except (queue_errors.ProcrastinateException, psycopg.Error, OSError) as error:
                why = type(error).__name__
            if stop.is_set():
                if lost.is_set():
                    # Another worker takes the row up once this one's lease has run out.
                    self._log.info("worker_left_a_row")
                return
            if why:
                self._log.warning("worker_restarts", why=why)
            await asyncio.sleep(_RESTART_S)

    async def _until(
        self, stop: asyncio.Event, lost: asyncio.Event, app: procrastinate.App, concurrency: int
    ) -> None:
        settings = self._settings
        working = asyncio.create_task(
            app.run_worker_async(
                queues=[self._schema],
                concurrency=concurrency,
                install_signal_handlers=False,
                listen_notify=True,
                delete_jobs="always",
                fetch_job_polling_interval=settings.poll_s,
                update_heartbeat_interval=settings.heartbeat_s,
                stalled_worker_timeout=settings.lease_s,
                shutdown_graceful_timeout=settings.shutdown_s,
            )
        )
        stopping = asyncio.create_task(stop.wait())
        losing = asyncio.create_task(lost.wait())
        try:
            await asyncio.wait({working, stopping, losing}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                # Cancelling asks the worker to stop; it first waits for its jobs.
                working.cancel()
            try:
                await working
            except asyncio.CancelledError:
                if not stop.is_set() and not lost.is_set():
                    raise
        finally:
            stopping.cancel()
            losing.cancel()
            if not working.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    async def _requeue_stalled(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                async with self._db.untenanted() as conn:
                    moved = await self._store.requeue_stalled(conn, self._settings.lease_s)
                if moved:
                    self._log.warning("stalled_jobs_requeued", count=moved)
            except errors.DomainError as error:
                self._log.warning("stalled_check_failed", reason=error.reason)
            try:
                await asyncio.wait_for(stop.wait(), self._settings.stalled_check_s)
            except TimeoutError:
                continue

    def _app(self) -> procrastinate.App:
        connector = procrastinate.PsycopgConnector(
            conninfo=conninfo(self._database, search_path=f"{self._schema}_queue"),
            min_size=1,
            max_size=4,
            timeout=self._database.pool_timeout_s,
            reconnect_timeout=5.0,
        )
        app = procrastinate.App(connector=connector)

        async def run(tenant_id: str, job_id: str) -> None:
            due = await self._attempts.run(tenant_id, job_id)
            if due is not None:
                raise _Later(due)

        app.task(name=TASK, queue=self._schema, retry=_Again(self._settings.backoff_base_s))(run)
        return app


def _lost_rows(app: procrastinate.App) -> asyncio.Event:
    """Set when the row of a job that was worked on could be neither finished nor put off.

    procrastinate goes on without a word, and the row stays "doing" under a worker that beats:
    nobody would ever take it up, nor what waits for its lock. A new worker makes it a stalled one.
    """
    lost = asyncio.Event()

    def watched(move: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(move)
        async def moving(*arguments: Any, **options: Any) -> Any:
            try:
                return await move(*arguments, **options)
            except BaseException:
                lost.set()
                raise

        return moving

    manager: Any = app.job_manager
    manager.finish_job = watched(manager.finish_job)
    manager.retry_job = watched(manager.retry_job)
    return lost
