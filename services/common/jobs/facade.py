"""``Jobs``: everything a service does with background work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime

from pydantic import SecretStr

from services.common import errors
from services.common.db import Connection, Database
from services.common.jobs.attempt import Attempts, Registered
from services.common.jobs.model import Forget, Handler, JobRecord, OnFailed
from services.common.jobs.store import JobStore
from services.common.jobs.worker import Worker
from services.common.settings import DatabaseSettings, JobSettings
from services.common.telemetry import Metrics

DEFAULT_TIMEOUT_S = 600.0


class Jobs:
    """The jobs of one schema. ``database`` is how the worker reaches the queue (needs LISTEN, so a
    direct connection); services that only enqueue and show jobs never use it."""

    def __init__(
        self,
        db: Database,
        schema: str,
        database: DatabaseSettings,
        settings: JobSettings | None = None,
        *,
        service_key: SecretStr | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._db = db
        self._schema = schema
        self._database = database
        self._settings = settings or JobSettings()
        self._store = JobStore(schema)
        self._handlers: dict[str, Registered] = {}
        self._service_key = service_key
        self._metrics = metrics

    def register(
        self,
        kind: str,
        handler: Handler,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        resumes: bool = False,
        forget: Forget | None = None,
        on_failed: OnFailed | None = None,
    ) -> None:
        """Let ``handler`` do jobs of ``kind``. An attempt longer than ``timeout_s`` is given up
        and retried; the handler's calls see that deadline. ``resumes``: an attempt goes on with
        what earlier ones left, so their failed items and kept result stay. ``forget`` removes what
        was kept for a job, in the transaction in which the job is removed. ``on_failed`` is called
        when no further attempt will be made, for whatever reason."""
        if kind in self._handlers:
            raise ValueError(f"{kind} has a handler already")
        self._handlers[kind] = Registered(handler, timeout_s, resumes, forget, on_failed)

    async def enqueue(
        self,
        conn: Connection,
        kind: str,
        subject: Mapping[str, str],
        *,
        lock: str | None = None,
        dedupe: str | None = None,
        total: int = 0,
        unit: str = "",
        delay_s: float = 0.0,
    ) -> str:
        """Add a job in the caller's tenant transaction; returns its id.

        Jobs with one ``lock`` never run at the same time and keep their order. While a job of this
        kind waits under the same ``dedupe`` key, its id is returned instead of a new one.
        """
        return await self._store.enqueue(
            conn, kind, subject, lock=lock, dedupe=dedupe, total=total, unit=unit, delay_s=delay_s
        )

    async def waits(self, conn: Connection, kind: str, dedupe: str) -> bool:
        """Whether ``enqueue`` would give back a job that waits already; for callers on a hot path:
        other than ``enqueue`` this never waits for the transaction of another one."""
        return await self._store.waits(conn, kind, dedupe)

    async def get(self, tenant_id: str, job_id: str) -> JobRecord:
        """One job; NOT_FOUND."""
        async with self._db.tenant(tenant_id) as conn:
            job = await self._store.get(conn, job_id)
        if job is None:
            raise errors.not_found("job", job_id)
        return job

    async def list(
        self,
        tenant_id: str,
        *,
        states: Sequence[str] = (),
        kind: str = "",
        after: tuple[datetime, str] | None = None,
        limit: int = 100,
    ) -> list[JobRecord]:
        """Jobs newest first; ``after`` is (create_time, job_id) of the last one seen."""
        async with self._db.tenant(tenant_id) as conn:
            return await self._store.page(conn, states, kind, after, limit)

    async def cancel(self, tenant_id: str, job_id: str) -> JobRecord:
        """Cancel a job: at once while it waits, as soon as its handler looks while it runs.

        One that has ended is given back unchanged: whoever cancels is always a little late, and
        the state says what became of it. NOT_FOUND.
        """
        async with self._db.tenant(tenant_id) as conn:
            return await self.cancel_in(conn, job_id)

    async def cancel_in(self, conn: Connection, job_id: str) -> JobRecord:
        """``cancel`` inside the caller's tenant transaction."""
        job = await self._locked(conn, job_id)
        if job.ended:
            return job
        await self._store.cancel(conn, job)
        return await self._locked(conn, job_id)

    async def replay(self, tenant_id: str, job_id: str) -> JobRecord:
        """Queue a failed or cancelled job again. NOT_FOUND, FAILED_PRECONDITION."""
        async with self._db.tenant(tenant_id) as conn:
            return await self.replay_in(conn, job_id)

    async def replay_in(self, conn: Connection, job_id: str) -> JobRecord:
        """``replay`` inside the caller's tenant transaction."""
        job = await self._locked(conn, job_id)
        if job.state not in ("failed", "cancelled"):
            raise errors.failed_precondition(
                job.state, "Only failed and cancelled jobs can be replayed."
            )
        await self._store.replay(conn, job)
        return await self._locked(conn, job_id)

    async def watch(self, tenant_id: str, job_id: str) -> AsyncIterator[JobRecord]:
        """The job now and after every change, until it has ended. Holds no connection between
        looks. NOT_FOUND."""
        shown: JobRecord | None = None
        while True:
            job = await self.get(tenant_id, job_id)
            if job != shown:
                shown = job
                yield job
            if job.ended:
                return
            await asyncio.sleep(self._settings.watch_poll_s)

    async def run_worker(self, stop: asyncio.Event, concurrency: int | None = None) -> None:
        """Work on this schema's queue until ``stop`` is set. Survives outages of the database."""
        if self._service_key is None:
            raise errors.StartupError(
                "A worker needs a service key: create one with `nianlun keys create-service` and"
                " set NIANLUN_SERVICE_KEY."
            )
        attempts = Attempts(
            self._db,
            self._store,
            self._handlers,
            self._settings,
            self._service_key.get_secret_value(),
            self._metrics or Metrics.create(),
        )
        worker = Worker(
            self._db, self._schema, self._store, attempts, self._database, self._settings
        )
        await worker.run(stop, concurrency or self._settings.concurrency)

    async def _locked(self, conn: Connection, job_id: str) -> JobRecord:
        job = await self._store.get(conn, job_id, lock=True)
        if job is None:
            raise errors.not_found("job", job_id)
        return job
