"""RPCs of usage, settings and jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date, timedelta
from typing import Final

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from nianlun.memory.v1 import memory_pb2 as pb
from services.common import context as call_context
from services.common import errors, validate
from services.common.db import Connection
from services.common.idempotency import replay_or_run
from services.common.jobs.rpc import JobRpcs
from services.memory import convert
from services.memory.background import RETENTION
from services.memory.deps import SCHEMA
from services.memory.domain import Budget, TenantSettings
from services.memory.servicer import base
from services.memory.store import turns as turn_store
from services.memory.store import usage as store

Context = grpc.aio.ServicerContext[object, object]
_LAYERS: Final = ("extract", "summary", "embed")
_MIN_RETENTION_S: Final = 3_600


class AdminRpcs(base.Rpcs):
    """GetUsage, GetSettings, UpdateSettings and the Job RPCs."""

    async def GetUsage(self, request: pb.GetUsageRequest, context: Context) -> pb.GetUsageResponse:
        """See the contract."""
        today = self.deps.now().date()
        first = _day("from_day", request.from_day, today)
        last = _day("to_day", request.to_day, today)
        if last < first or last - first > timedelta(days=366):
            raise errors.invalid_argument("to_day", "must be 0 to 366 days after from_day")
        async with self.deps.db.tenant() as conn:
            rows = await store.between(conn, first, last)
            settings = await store.settings(conn)
            spent = await store.exhausted_layers(conn)
        return pb.GetUsageResponse(
            entries=[convert.usage(r) for r in rows],
            budgets=[convert.budget(b) for b in settings.budgets],
            exhausted_layers=spent,
        )

    async def GetSettings(
        self, request: pb.GetSettingsRequest, context: Context
    ) -> pb.GetSettingsResponse:
        """See the contract."""
        async with self.deps.db.tenant() as conn:
            found = await store.settings(conn)
        return pb.GetSettingsResponse(settings=convert.settings(found))

    async def UpdateSettings(
        self, request: pb.UpdateSettingsRequest, context: Context
    ) -> pb.UpdateSettingsResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        wanted = _settings(request.settings)

        async def run(conn: Connection) -> pb.UpdateSettingsResponse:
            old = await store.settings(conn, lock=True)
            if request.settings.etag and request.settings.etag != old.etag:
                raise errors.etag_mismatch()
            await store.put_settings(conn, wanted)
            if wanted.retention_s:
                await self.deps.jobs.enqueue(
                    conn, RETENTION, {}, lock=RETENTION, dedupe=RETENTION, unit="items"
                )
            return pb.UpdateSettingsResponse(settings=convert.settings(await store.settings(conn)))

        return await self.write(request, pb.UpdateSettingsResponse, run, "")

    def _jobs(self) -> JobRpcs:
        return JobRpcs(self.deps.jobs, self.deps.db, SCHEMA)

    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> pb.GetJobResponse:
        """See the contract."""
        return pb.GetJobResponse(job=await self._jobs().get(request))

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        """See the contract."""
        jobs, token = await self._jobs().list(request)
        return pb.ListJobsResponse(jobs=jobs, next_page_token=token)

    async def CancelJob(
        self, request: pb.CancelJobRequest, context: Context
    ) -> pb.CancelJobResponse:
        """See the contract."""
        return await self._jobs().cancel(request, pb.CancelJobResponse)

    async def ReplayJob(
        self, request: pb.ReplayJobRequest, context: Context
    ) -> pb.ReplayJobResponse:
        """See the contract. Quarantined turns of the session get another round."""
        validate.request_id(request.request_id)
        job_id = validate.ident("job_id", request.job_id)
        async with self.deps.db.tenant() as conn:

            async def replay() -> pb.ReplayJobResponse:
                job = await self.deps.jobs.replay_in(conn, job_id)
                user_id, session_id = job.subject.get("user_id"), job.subject.get("session_id")
                if user_id and session_id:
                    await turn_store.release_quarantined(conn, user_id, session_id)
                return pb.ReplayJobResponse(job=job.message())

            response = await replay_or_run(conn, SCHEMA, request, pb.ReplayJobResponse, replay)
        self.deps.wake()
        return response

    async def WatchJob(
        self, request: pb.WatchJobRequest, context: Context
    ) -> AsyncIterator[pb.WatchJobResponse]:
        """See the contract."""
        call_context.current_caller()
        async for job in self._jobs().watch(request):
            yield pb.WatchJobResponse(job=job)


def _day(field: str, value: str, default: date) -> date:
    if not value:
        return default
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise errors.invalid_argument(field, 'must be a day "YYYY-MM-DD"') from None


def _settings(message: pb.Settings) -> TenantSettings:
    """Checked settings; what is left out takes its default."""
    defaults = TenantSettings()
    half_life = message.half_life_days or defaults.half_life_days
    floor = message.decay_floor if message.HasField("decay_floor") else defaults.decay_floor
    gate = None
    if message.HasField("gate"):
        gate = validate.number("settings.gate", message.gate, 0.0, 1.0)
    every = message.summary_every or defaults.summary_every
    return TenantSettings(
        half_life_days=validate.number("settings.half_life_days", half_life, 0.1, 36_500.0),
        decay_floor=validate.number("settings.decay_floor", floor, 0.0, 1.0),
        gate=gate,
        summary_every=int(validate.number("settings.summary_every", every, 2, 1_000)),
        retention_s=_retention(message.retention),
        budgets=_budgets(message),
    )


def _retention(message: pb.Retention) -> dict[str, float]:
    kept: dict[str, float] = {}
    for name in ("turns", "episodes", "closed_facts", "readings", "summary_versions"):
        if message.HasField(name):
            value: Duration = getattr(message, name)
            seconds = value.seconds + value.nanos / 1e9
            field = f"settings.retention.{name}"
            kept[name] = validate.number(field, seconds, _MIN_RETENTION_S, 3.2e9)
    return kept


def _budgets(message: pb.Settings) -> tuple[Budget, ...]:
    out: list[Budget] = []
    for number, budget in enumerate(message.budgets):
        field = f"settings.budgets[{number}]"
        if budget.layer not in _LAYERS:
            raise errors.invalid_argument(f"{field}.layer", f"must be one of {', '.join(_LAYERS)}")
        if any(b.layer == budget.layer for b in out):
            raise errors.invalid_argument(f"{field}.layer", "stands there twice")
        calls = budget.daily_calls if budget.HasField("daily_calls") else None
        tokens = budget.daily_tokens if budget.HasField("daily_tokens") else None
        for name, value in (("daily_calls", calls), ("daily_tokens", tokens)):
            if value is not None:
                validate.number(f"{field}.{name}", value, 0, 2**53)
        out.append(Budget(budget.layer, calls, tokens))
    return tuple(out)
