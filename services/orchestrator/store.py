"""SQL of runs and feedback. Every function runs inside a tenant transaction of the caller."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.common.db import TENANT, Connection
from services.common.jobs.store import JobStore

_JOBS = JobStore("orchestrator")
# As it is shown: a run whose lease is over has lost its process.
_STATE = "CASE WHEN state = 'running' AND lease_until < now() THEN 'lost' ELSE state END"
# No id holds a control character, so that this one keeps the two parts of a subject apart.
_SEPARATOR = "\x1f"


@dataclass(frozen=True)
class RunRow:
    """What a claim needs to know of an existing run."""

    run_id: str
    state: str
    input_hash: bytes
    leased: bool
    events: bytes | None


@dataclass(frozen=True)
class Ending:
    """How a run ended; payloads are serialised messages of the contract."""

    run_id: str
    attempt: str
    state: str
    record: bytes
    response: bytes | None
    events: bytes
    prompt: bytes | None
    pending: bytes | None


@dataclass(frozen=True)
class StoredRun:
    """A run as GetRun and ListRuns show it."""

    run_id: str
    request_id: str
    user_id: str
    session_id: str
    state: str
    create_time: datetime
    end_time: datetime | None
    record: bytes | None
    events: bytes | None = None
    prompt: bytes | None = None
    response: bytes | None = None


async def insert_run(
    conn: Connection,
    *,
    run_id: str,
    attempt: str,
    request_id: str,
    input_hash: bytes,
    user_id: str,
    session_id: str,
    lease_s: float,
) -> bool:
    """Insert a running run; False when the request_id is taken."""
    cursor = await conn.execute(
        f"""
        INSERT INTO orchestrator.runs (tenant_id, run_id, request_id, input_hash, user_id,
        session_id,
                                       state, attempt, lease_until)
        VALUES ({TENANT}, %s, %s, %s, %s, %s, 'running', %s, now() + make_interval(secs => %s))
        ON CONFLICT (tenant_id, request_id) DO NOTHING
        """,
        (run_id, request_id, input_hash, user_id, session_id, attempt, lease_s),
    )
    return cursor.rowcount == 1


async def lock_run(conn: Connection, request_id: str) -> RunRow | None:
    """The run of a request_id, locked until the transaction ends."""
    cursor = await conn.execute(
        f"""
        SELECT run_id, state, input_hash, lease_until > now() AS leased, events
        FROM orchestrator.runs WHERE tenant_id = {TENANT} AND request_id = %s FOR UPDATE
        """,
        (request_id,),
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    return RunRow(
        run_id=str(row["run_id"]),
        state=row["state"],
        input_hash=bytes(row["input_hash"]),
        leased=row["leased"],
        events=_bytes(row["events"]),
    )


async def take_over(conn: Connection, run_id: str, attempt: str, lease_s: float) -> None:
    """Start a run that failed, was cancelled, or whose process vanished, once more."""
    await conn.execute(
        f"""
        UPDATE orchestrator.runs
        SET state = 'running', attempt = %s, lease_until = now() + make_interval(secs => %s),
            end_time = NULL, record = NULL, response = NULL, events = NULL, prompt = NULL
        WHERE tenant_id = {TENANT} AND run_id = %s
        """,
        (attempt, lease_s, run_id),
    )


async def renew(conn: Connection, run_id: str, attempt: str, lease_s: float) -> bool:
    """Extend the lease; False when another attempt has the run now."""
    cursor = await conn.execute(
        f"""
        UPDATE orchestrator.runs SET lease_until = now() + make_interval(secs => %s)
        WHERE tenant_id = {TENANT} AND run_id = %s AND attempt = %s AND state = 'running'
        """,
        (lease_s, run_id, attempt),
    )
    return cursor.rowcount == 1


async def end_run(conn: Connection, ending: Ending) -> bool:
    """Store how a run ended; False when another attempt has the run now."""
    cursor = await conn.execute(
        f"""
        UPDATE orchestrator.runs
        SET state = %s, end_time = now(), record = %s, response = %s, events = %s, prompt = %s,
        pending = %s
        WHERE tenant_id = {TENANT} AND run_id = %s AND attempt = %s AND state = 'running'
        """,
        (
            ending.state,
            ending.record,
            ending.response,
            ending.events,
            ending.prompt,
            ending.pending,
            ending.run_id,
            ending.attempt,
        ),
    )
    return cursor.rowcount == 1


async def ended_by(conn: Connection, run_id: str, attempt: str) -> bool:
    """Whether this attempt has stored the run's end."""
    cursor = await conn.execute(
        f"""
        SELECT 1 FROM orchestrator.runs
        WHERE tenant_id = {TENANT} AND run_id = %s AND attempt = %s AND state <> 'running'
        """,
        (run_id, attempt),
    )
    return await cursor.fetchone() is not None


async def get_run(conn: Connection, run_id: str) -> StoredRun | None:
    """One run with its payloads."""
    cursor = await conn.execute(
        f"""
        SELECT run_id, request_id, user_id, session_id, {_STATE} AS state, create_time, end_time,
               record, events, prompt, response
        FROM orchestrator.runs WHERE tenant_id = {TENANT} AND run_id = %s
        """,
        (run_id,),
    )
    row = await cursor.fetchone()
    return None if row is None else _stored(row)


async def list_runs(
    conn: Connection,
    *,
    user_id: str,
    session_id: str,
    states: list[str],
    before: tuple[datetime, str] | None,
    limit: int,
) -> list[StoredRun]:
    """Runs newest first, without payloads; `before` is (create_time, run_id) of
    the last one seen.
    """
    cursor = await conn.execute(
        f"""
        SELECT run_id, request_id, user_id, session_id, {_STATE} AS state, create_time, end_time,
               record, NULL AS events, NULL AS prompt, NULL AS response
        FROM orchestrator.runs
        WHERE tenant_id = {TENANT}
          AND (%(user)s = '' OR user_id = %(user)s)
          AND (%(session)s = '' OR session_id = %(session)s)
          AND (cardinality(%(states)s::text[]) = 0 OR {_STATE} = ANY (%(states)s::text[]))
          AND (%(time)s::timestamptz IS NULL OR (create_time, run_id) < (%(time)s, %(run)s::uuid))
        ORDER BY create_time DESC, run_id DESC LIMIT %(limit)s
        """,
        {
            "user": user_id,
            "session": session_id,
            "states": states,
            "time": before[0] if before else None,
            "run": before[1] if before else None,
            "limit": limit,
        },
    )
    return [_stored(row) for row in await cursor.fetchall()]


async def pending(conn: Connection, run_id: str) -> tuple[bytes, bytes] | None:
    """(pending exchange, record) of a run that is not saved yet."""
    cursor = await conn.execute(
        f"""
        SELECT pending, record FROM orchestrator.runs
        WHERE tenant_id = {TENANT} AND run_id = %s AND pending IS NOT NULL
        """,
        (run_id,),
    )
    row = await cursor.fetchone()
    return None if row is None else (bytes(row["pending"]), bytes(row["record"]))


async def show_save(conn: Connection, run_id: str, record: bytes, *, done: bool) -> None:
    """`record` says how the save of a run stands; once `done`, the exchange waits no more."""
    await conn.execute(
        f"""
        UPDATE orchestrator.runs SET record = %s, pending = CASE WHEN NOT %s THEN pending END
        WHERE tenant_id = {TENANT} AND run_id = %s AND pending IS NOT NULL
        """,
        (record, done, run_id),
    )


async def put_feedback(
    conn: Connection, run_id: str, reading_id: str, verdict: str, comment: str
) -> datetime:
    """Store or replace one verdict; returns its time."""
    cursor = await conn.execute(
        f"""
        INSERT INTO orchestrator.feedback (tenant_id, run_id, reading_id, verdict, comment)
        VALUES ({TENANT}, %s, %s, %s, %s)
        ON CONFLICT (tenant_id, run_id, reading_id) DO UPDATE
        SET verdict = excluded.verdict, comment = excluded.comment,
            create_time = excluded.create_time
        RETURNING create_time
        """,
        (run_id, reading_id, verdict, comment),
    )
    row = await cursor.fetchone()
    assert row is not None
    when: datetime = row["create_time"]
    return when


async def feedback(conn: Connection, run_id: str) -> list[dict[str, Any]]:
    """All verdicts on a run: reading_id, verdict, comment, create_time."""
    cursor = await conn.execute(
        f"""
        SELECT reading_id, verdict, comment, create_time FROM orchestrator.feedback
        WHERE tenant_id = {TENANT} AND run_id = %s ORDER BY create_time
        """,
        (run_id,),
    )
    return await cursor.fetchall()


async def purge_payloads(conn: Connection, days: int) -> int:
    """Delete runs older than `days` that no job is going to save."""
    cursor = await conn.execute(
        f"""
        DELETE FROM orchestrator.runs AS r
        WHERE r.tenant_id = {TENANT} AND r.create_time < now() - make_interval(days => %s)
          AND (r.pending IS NULL OR NOT EXISTS (
            SELECT 1 FROM orchestrator.jobs AS j
            WHERE j.tenant_id = {TENANT} AND j.subject ->> 'run_id' = r.run_id::text
              AND j.state IN ('queued', 'running', 'retrying')))
        """,
        (days,),
    )
    return cursor.rowcount


async def holds_anything(conn: Connection) -> bool:
    """Whether there is a run or a session that a later purge may find past its retention."""
    cursor = await conn.execute(
        f"""
        SELECT EXISTS (SELECT 1 FROM orchestrator.runs WHERE tenant_id = {TENANT})
            OR EXISTS (SELECT 1 FROM orchestrator.sessions WHERE tenant_id = {TENANT}) AS any
        """
    )
    row = await cursor.fetchone()
    return bool(row and row["any"])


async def erase(conn: Connection, user_id: str, session_id: str) -> dict[str, int]:
    """Delete everything of a user, or of one session of theirs; returns rows by kind."""
    removed: dict[str, int] = {}
    for table in ("runs", "session_messages", "sessions"):
        cursor = await conn.execute(
            f"""
            DELETE FROM orchestrator.{table}
            WHERE tenant_id = {TENANT} AND user_id = %(user)s
              AND (%(session)s = '' OR session_id = %(session)s)
            """,
            {"user": user_id, "session": session_id},
        )
        removed[table] = cursor.rowcount
    subject = {"user_id": user_id} | ({"session_id": session_id} if session_id else {})
    removed["jobs"] = len(await _JOBS.erase(conn, subject))
    whose = "subject" if session_id else f"split_part(subject, '{_SEPARATOR}', 1)"
    cursor = await conn.execute(
        f"DELETE FROM orchestrator.requests WHERE tenant_id = {TENANT} AND {whose} = %s",
        (answers_about(user_id, session_id),),
    )
    removed["requests"] = cursor.rowcount
    return removed


def answers_about(user_id: str, session_id: str) -> str:
    """The subject of a stored answer: the user, and the session where there is one."""
    return f"{user_id}{_SEPARATOR}{session_id}" if session_id else user_id


def _stored(row: dict[str, Any]) -> StoredRun:
    return StoredRun(
        run_id=str(row["run_id"]),
        request_id=row["request_id"],
        user_id=row["user_id"],
        session_id=row["session_id"],
        state=row["state"],
        create_time=row["create_time"],
        end_time=row["end_time"],
        record=_bytes(row["record"]),
        events=_bytes(row["events"]),
        prompt=_bytes(row["prompt"]),
        response=_bytes(row["response"]),
    )


def _bytes(value: bytes | memoryview | None) -> bytes | None:
    return None if value is None else bytes(value)
