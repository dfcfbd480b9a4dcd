"""The five Job RPCs of a service: proto in, ``Jobs`` call, proto out.

A servicer delegates, for instance ``return GetJobResponse(job=await self._jobs_rpc.get(request))``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

from google.protobuf.message import Message

from nianlun.common.v1 import common_pb2
from services.common import context, validate
from services.common.db import Connection, Database
from services.common.idempotency import replay_or_run
from services.common.jobs.facade import Jobs
from services.common.jobs.model import STATE_NAMES, JobRecord
from services.common.pages import page

M = TypeVar("M", bound=Message)

MAX_PAGE = 200
DEFAULT_PAGE = 50
MAX_STATES = 8
MAX_KIND_CHARS = 64


class JobRpcs:
    """Job RPCs over the jobs of one schema, for the current caller's tenant."""

    def __init__(self, jobs: Jobs, db: Database, schema: str) -> None:
        self._jobs = jobs
        self._db = db
        self._schema = schema

    async def get(self, request: Any) -> common_pb2.Job:
        """GetJob."""
        tenant = context.current_caller().tenant_id
        job_id = validate.ident("job_id", request.job_id)
        return (await self._jobs.get(tenant, job_id)).message()

    async def list(self, request: Any) -> tuple[list[common_pb2.Job], str]:
        """ListJobs: the jobs of one page and the next page's token."""
        wanted = page(request, max_size=MAX_PAGE, default=DEFAULT_PAGE)
        validate.count("states", request.states, MAX_STATES)
        states = [
            STATE_NAMES[validate.one_of_enum("states", state, common_pb2.JobState)]
            for state in request.states
        ]
        kind = validate.text("kind", request.kind, MAX_KIND_CHARS, 0)
        after = None
        if wanted.cursor:
            stamp, job_id = wanted.cursor
            after = (datetime.fromisoformat(str(stamp)), str(job_id))
        jobs = await self._jobs.list(
            context.current_caller().tenant_id,
            states=states,
            kind=kind,
            after=after,
            limit=wanted.size + 1,
        )
        token = ""
        if len(jobs) > wanted.size:
            jobs = jobs[: wanted.size]
            token = wanted.next_token(jobs[-1].create_time.isoformat(), jobs[-1].job_id)
        return [job.message() for job in jobs], token

    async def cancel(
        self,
        request: Any,
        response_type: type[M],
        then: Callable[[Connection, JobRecord], Awaitable[None]] | None = None,
    ) -> M:
        """CancelJob, idempotent by request_id. ``response_type`` has a field ``job``.

        ``then`` tidies up in the same transaction after a job that has ended: one that had not
        begun, or waited for another attempt, has no handler that could.
        """
        validate.request_id(request.request_id)
        job_id = validate.ident("job_id", request.job_id)
        async with self._db.tenant() as conn:

            async def cancel() -> M:
                job = await self._jobs.cancel_in(conn, job_id)
                if then is not None and job.ended:
                    await then(conn, job)
                return _with_job(response_type, job.message())

            return await replay_or_run(conn, self._schema, request, response_type, cancel)

    async def replay(self, request: Any, response_type: type[M]) -> M:
        """ReplayJob, idempotent by request_id. ``response_type`` has a field ``job``."""
        validate.request_id(request.request_id)
        job_id = validate.ident("job_id", request.job_id)
        async with self._db.tenant() as conn:

            async def replay() -> M:
                return _with_job(
                    response_type, (await self._jobs.replay_in(conn, job_id)).message()
                )

            return await replay_or_run(conn, self._schema, request, response_type, replay)

    async def watch(self, request: Any) -> AsyncIterator[common_pb2.Job]:
        """WatchJob: the job now and after every change."""
        tenant = context.current_caller().tenant_id
        job_id = validate.ident("job_id", request.job_id)
        async for job in self._jobs.watch(tenant, job_id):
            yield job.message()


def _with_job(response_type: type[M], job: common_pb2.Job) -> M:
    response = response_type()
    response.job.CopyFrom(job)  # type: ignore[attr-defined]
    return response
