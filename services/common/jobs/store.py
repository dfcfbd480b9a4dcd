"""SQL of the status table. Every function runs in the caller's tenant transaction.

Writes of an attempt name its lease: once another worker has taken the job over, they touch no row.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, LiteralString

from psycopg import sql
from psycopg.types.json import Jsonb

from services.common.db import Connection
from services.common.jobs.model import MAX_ITEM_ERRORS, JobRecord, Outcome

_COLUMNS = (
    "tenant_id, job_id, kind, state, subject, lock, done, total, unit, attempts, failures,"
    " error_reason, error_message, item_errors, result, cancel_requested, queue_id, create_time,"
    " update_time, first_failure_time, next_attempt_time, end_time"
)
_MINE = "tenant_id = current_setting('nianlun.tenant_id') AND job_id = %(job_id)s"
_LEASED = _MINE + " AND lease = %(lease)s AND state = 'running'"


class JobStore:
    """The jobs table of one schema."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    async def enqueue(
        self,
        conn: Connection,
        kind: str,
        subject: Mapping[str, str],
        *,
        lock: str | None,
        dedupe: str | None,
        total: int,
        unit: str,
        delay_s: float,
    ) -> str:
        """Add a job, or return the one that waits under the same dedupe key."""
        row = await self._one(
            conn,
            "SELECT {schema}.enqueue_job(%(kind)s, %(subject)s, %(lock)s, %(dedupe)s, %(total)s,"
            " %(unit)s, %(delay)s) AS job_id",
            kind=kind,
            subject=Jsonb(dict(subject)),
            lock=lock,
            dedupe=dedupe,
            total=total,
            unit=unit,
            delay=timedelta(seconds=delay_s),
        )
        assert row is not None
        return str(row["job_id"])

    async def waits(self, conn: Connection, kind: str, dedupe: str) -> bool:
        """Whether a job waits for its first attempt under this dedupe key. Locks nothing."""
        row = await self._one(
            conn,
            "SELECT 1 AS waits FROM {jobs} WHERE tenant_id = current_setting('nianlun.tenant_id')"
            " AND kind = %(kind)s AND dedupe = %(dedupe)s AND state = 'queued'",
            kind=kind,
            dedupe=dedupe,
        )
        return row is not None

    async def get(self, conn: Connection, job_id: str, *, lock: bool = False) -> JobRecord | None:
        """One job of the tenant. An id that is no UUID is unknown."""
        if _as_uuid(job_id) is None:
            return None
        row = await self._one(
            conn,
            f"SELECT {_COLUMNS} FROM {{jobs}} WHERE {_MINE}" + (" FOR UPDATE" if lock else ""),
            job_id=job_id,
        )
        return None if row is None else JobRecord.from_row(row)

    async def page(
        self,
        conn: Connection,
        states: Sequence[str],
        kind: str,
        after: tuple[datetime, str] | None,
        limit: int,
    ) -> list[JobRecord]:
        """Jobs newest first, starting after (create_time, job_id)."""
        cursor = await conn.execute(
            self._sql(
                f"SELECT {_COLUMNS} FROM {{jobs}}"
                " WHERE tenant_id = current_setting('nianlun.tenant_id')"
                " AND (cardinality(%(states)s::text[]) = 0 OR state = ANY(%(states)s))"
                " AND (%(kind)s = '' OR kind = %(kind)s)"
                " AND (%(time)s::timestamptz IS NULL"
                "      OR (create_time, job_id) < (%(time)s::timestamptz, %(job_id)s::uuid))"
                " ORDER BY create_time DESC, job_id DESC LIMIT %(limit)s"
            ),
            {
                "states": list(states),
                "kind": kind,
                "time": None if after is None else after[0],
                "job_id": None if after is None else after[1],
                "limit": limit,
            },
        )
        return [JobRecord.from_row(row) for row in await cursor.fetchall()]

    async def claim(
        self,
        conn: Connection,
        job_id: str,
        lease: str,
        resuming: Sequence[str] = (),
        *,
        lost: bool = True,
    ) -> JobRecord | None:
        """Start an attempt under ``lease``. None where nothing is to be done: unknown, ended, or
        cancelled meanwhile. An attempt that still runs elsewhere loses its lease. Jobs of the kinds
        ``resuming`` keep what earlier attempts have noted: failed items and the result so far.
        ``lost``: an attempt that never ended counts as a failure, its worker has died of it."""
        row = await self._one(
            conn,
            "UPDATE {jobs} SET"
            " state = CASE WHEN cancel_requested THEN 'cancelled' ELSE 'running' END,"
            " end_time = CASE WHEN cancel_requested THEN now() END,"
            " attempts = attempts + CASE WHEN cancel_requested THEN 0 ELSE 1 END,"
            " item_errors = CASE WHEN kind = ANY(%(resuming)s) THEN item_errors ELSE '[]' END,"
            " result = CASE WHEN kind = ANY(%(resuming)s) THEN result ELSE '{{}}' END,"
            " failures = failures + (state = 'running' AND %(lost)s)::int,"
            " lease = %(lease)s, next_attempt_time = NULL,"
            " update_time = clock_timestamp()"
            f" WHERE {_MINE} AND state IN ('queued', 'running', 'retrying')"
            f" RETURNING {_COLUMNS}",
            job_id=job_id,
            lease=lease,
            resuming=list(resuming),
            lost=lost,
        )
        if row is None or row["state"] == "cancelled":
            return None
        return JobRecord.from_row(row)

    async def progress(
        self, conn: Connection, job_id: str, lease: str, done: int, total: int | None
    ) -> bool:
        """Set done and, unless None, total. Failures count from where a job got furthest."""
        return await self._write(
            conn,
            "UPDATE {jobs} SET done = %(done)s, total = coalesce(%(total)s, total),"
            " failures = CASE WHEN %(done)s > done THEN 0 ELSE failures END,"
            f" update_time = clock_timestamp() WHERE {_LEASED}",
            job_id=job_id,
            lease=lease,
            done=done,
            total=total,
        )

    async def item_error(
        self, conn: Connection, job_id: str, lease: str, item: Mapping[str, str]
    ) -> bool:
        """Add an item's failure; beyond the limit it is dropped (the row still counts as held)."""
        return await self._write(
            conn,
            "UPDATE {jobs} SET update_time = clock_timestamp(), item_errors = CASE"
            " WHEN jsonb_array_length(item_errors) < %(limit)s THEN item_errors || %(item)s"
            f" ELSE item_errors END WHERE {_LEASED}",
            job_id=job_id,
            lease=lease,
            item=Jsonb([dict(item)]),
            limit=MAX_ITEM_ERRORS,
        )

    async def keep(
        self, conn: Connection, job_id: str, lease: str, result: Mapping[str, str]
    ) -> bool:
        """Note the result so far; locks the row as ``holds`` does. A job that got further is not
        one of which its workers die: failures count from here."""
        return await self._write(
            conn,
            "UPDATE {jobs} SET result = %(result)s, update_time = clock_timestamp(),"
            " failures = CASE WHEN result = %(result)s THEN failures ELSE 0 END"
            f" WHERE {_LEASED}",
            job_id=job_id,
            lease=lease,
            result=Jsonb(dict(result)),
        )

    async def holds(self, conn: Connection, job_id: str, lease: str) -> bool:
        """True while ``lease`` is the job's; locks the row until the transaction ends, so that
        nobody takes the job over before what the caller writes is committed."""
        row = await self._one(
            conn,
            f"SELECT 1 AS held FROM {{jobs}} WHERE {_LEASED} FOR UPDATE",
            job_id=job_id,
            lease=lease,
        )
        return row is not None

    async def succeed(
        self, conn: Connection, job_id: str, lease: str, result: Mapping[str, str]
    ) -> bool:
        """End the job well; what went wrong before is forgotten."""
        return await self._write(
            conn,
            "UPDATE {jobs} SET state = 'succeeded', result = %(result)s, lease = NULL,"
            " error_reason = NULL, error_message = NULL,"
            " end_time = clock_timestamp(), update_time = clock_timestamp(),"
            f" done = greatest(done, total) WHERE {_LEASED}",
            job_id=job_id,
            lease=lease,
            result=Jsonb(dict(result)),
        )

    async def retry(
        self, conn: Connection, job_id: str, lease: str, outcome: Outcome, at: datetime
    ) -> bool:
        """Plan the next attempt, unless a cancellation came in: then the job ends."""
        return await self._write(
            conn,
            "UPDATE {jobs} SET"
            " state = CASE WHEN cancel_requested THEN 'cancelled' ELSE 'retrying' END,"
            " end_time = CASE WHEN cancel_requested THEN clock_timestamp() END,"
            " next_attempt_time = CASE WHEN cancel_requested THEN NULL ELSE %(at)s END,"
            " error_reason = %(reason)s, error_message = %(message)s, lease = NULL,"
            " failures = failures + %(counted)s,"
            " first_failure_time = coalesce(first_failure_time, clock_timestamp()),"
            f" update_time = clock_timestamp() WHERE {_LEASED}",
            job_id=job_id,
            lease=lease,
            at=at,
            reason=outcome.reason,
            message=outcome.message,
            counted=0 if outcome.retryable else 1,
        )

    async def release(self, conn: Connection, job_id: str, lease: str) -> bool:
        """Give the job back unfinished, without an error: the worker is stopping."""
        return await self._write(
            conn,
            "UPDATE {jobs} SET state = 'retrying', next_attempt_time = clock_timestamp(),"
            f" lease = NULL, update_time = clock_timestamp() WHERE {_LEASED}",
            job_id=job_id,
            lease=lease,
        )

    async def fail(self, conn: Connection, job_id: str, lease: str, outcome: Outcome) -> bool:
        """End the job without success."""
        return await self._write(
            conn,
            "UPDATE {jobs} SET state = 'failed', error_reason = %(reason)s,"
            " error_message = %(message)s, lease = NULL, failures = failures + %(counted)s,"
            " first_failure_time = coalesce(first_failure_time, clock_timestamp()),"
            f" end_time = clock_timestamp(), update_time = clock_timestamp() WHERE {_LEASED}",
            job_id=job_id,
            lease=lease,
            reason=outcome.reason,
            message=outcome.message,
            counted=0 if outcome.retryable else 1,
        )

    async def cancel_leased(self, conn: Connection, job_id: str, lease: str) -> bool:
        """End the job as cancelled, because its handler stopped for that reason."""
        return await self._write(
            conn,
            "UPDATE {jobs} SET state = 'cancelled', lease = NULL, end_time = clock_timestamp(),"
            f" update_time = clock_timestamp() WHERE {_LEASED}",
            job_id=job_id,
            lease=lease,
        )

    async def cancel(self, conn: Connection, job: JobRecord) -> None:
        """Cancel a job that was read with a lock: now while it waits, by request while it runs."""
        if job.state == "running":
            await self._write(
                conn,
                "UPDATE {jobs} SET cancel_requested = true, update_time = clock_timestamp()"
                f" WHERE {_MINE}",
                job_id=job.job_id,
            )
            return
        await self._write(
            conn,
            "UPDATE {jobs} SET state = 'cancelled', cancel_requested = true,"
            " end_time = clock_timestamp(), update_time = clock_timestamp(),"
            f" next_attempt_time = NULL WHERE {_MINE}",
            job_id=job.job_id,
        )
        # A row left in the queue would keep later jobs with the same lock waiting.
        await self._one(conn, "SELECT {schema}.unqueue_job(%(queue)s)", queue=job.queue_id)

    async def replay(self, conn: Connection, job: JobRecord) -> None:
        """Queue an ended job again, its count of failures forgotten."""
        await self._write(
            conn,
            "UPDATE {jobs} SET state = 'queued', cancel_requested = false, failures = 0, done = 0,"
            " first_failure_time = NULL, end_time = NULL, dedupe = NULL, next_attempt_time = NULL,"
            " update_time = clock_timestamp(),"
            " queue_id = {schema}.defer_job(tenant_id, job_id, lock, NULL)"
            f" WHERE {_MINE}",
            job_id=job.job_id,
        )

    async def purge(
        self, conn: Connection, keep_days: int, limit: int = 1_000
    ) -> list[tuple[str, Mapping[str, str]]]:
        """Remove the tenant's jobs that ended longer than ``keep_days`` ago: kinds, subjects."""
        cursor = await conn.execute(
            self._sql(
                "DELETE FROM {jobs} WHERE tenant_id = current_setting('nianlun.tenant_id')"
                " AND job_id IN (SELECT job_id FROM {jobs}"
                " WHERE tenant_id = current_setting('nianlun.tenant_id')"
                " AND end_time < now() - make_interval(days => %(days)s)"
                " ORDER BY create_time LIMIT %(limit)s) RETURNING kind, subject"
            ),
            {"days": keep_days, "limit": limit},
        )
        return [(row["kind"], row["subject"]) for row in await cursor.fetchall()]

    async def erase(self, conn: Connection, subject: Mapping[str, str]) -> list[str]:
        """Remove the tenant's jobs whose subject holds all of ``subject``, and their queue entries;
        the ids of the jobs. An attempt under way loses its lease."""
        cursor = await conn.execute(
            self._sql(
                "DELETE FROM {jobs} WHERE tenant_id = current_setting('nianlun.tenant_id')"
                " AND subject @> %(subject)s RETURNING job_id, queue_id"
            ),
            {"subject": Jsonb(dict(subject))},
        )
        rows = await cursor.fetchall()
        queue_ids = [row["queue_id"] for row in rows if row["queue_id"] is not None]
        if queue_ids:
            await self._one(
                conn,
                "SELECT count({schema}.unqueue_job(q)) FROM unnest(%(queue)s::bigint[]) AS q",
                queue=queue_ids,
            )
        return [str(row["job_id"]) for row in rows]

    async def requeue_stalled(self, conn: Connection, lease_s: float) -> int:
        """Hand the jobs of workers that stopped beating to others; needs no tenant."""
        row = await self._one(
            conn,
            "SELECT {schema}.requeue_stalled(%(lease)s) AS moved",
            lease=timedelta(seconds=lease_s),
        )
        return 0 if row is None else int(row["moved"])

    async def _one(
        self, conn: Connection, query: LiteralString, **values: Any
    ) -> Mapping[str, Any] | None:
        cursor = await conn.execute(self._sql(query), values)
        return await cursor.fetchone()

    async def _write(self, conn: Connection, query: LiteralString, **values: Any) -> bool:
        cursor = await conn.execute(self._sql(query), values)
        return cursor.rowcount == 1

    def _sql(self, query: LiteralString) -> sql.Composed:
        return sql.SQL(query).format(
            jobs=sql.Identifier(self._schema, "jobs"), schema=sql.Identifier(self._schema)
        )


def _as_uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
