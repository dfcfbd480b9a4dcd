"""SQL of session checkpoints. Every function runs inside a tenant transaction of the caller."""

from __future__ import annotations

from dataclasses import dataclass

from services.common.db import TENANT, Connection
from services.orchestrator.domain import History, HistoryLine

_READ_MESSAGES = 400


@dataclass(frozen=True)
class Message:
    """A stored message of a session."""

    seq: int
    role: str
    text: str


async def load(conn: Connection, user_id: str, session_id: str) -> History:
    """The checkpoint of a session; empty and not `stored` where there is none."""
    messages, summary = await messages_since(conn, user_id, session_id)
    if not messages and not summary:
        return History()
    lines = tuple(HistoryLine(m.role, m.text) for m in messages)
    return History(lines=lines, summary=summary, stored=True)


async def messages_since(
    conn: Connection, user_id: str, session_id: str
) -> tuple[list[Message], str]:
    """Messages after the summarised part, oldest first, and the summary of that part."""
    cursor = await conn.execute(
        f"""
        SELECT summary, summarised_seq FROM orchestrator.sessions
        WHERE tenant_id = {TENANT} AND user_id = %s AND session_id = %s
        """,
        (user_id, session_id),
    )
    head = await cursor.fetchone()
    if head is None:
        return [], ""
    cursor = await conn.execute(
        f"""
        SELECT seq, role, text FROM orchestrator.session_messages
        WHERE tenant_id = {TENANT} AND user_id = %s AND session_id = %s AND seq > %s
        ORDER BY seq DESC LIMIT %s
        """,
        (user_id, session_id, head["summarised_seq"], _READ_MESSAGES),
    )
    rows = await cursor.fetchall()
    messages = [Message(row["seq"], row["role"], row["text"]) for row in reversed(rows)]
    return messages, head["summary"]


async def append(
    conn: Connection, user_id: str, session_id: str, run_id: str, lines: tuple[HistoryLine, ...]
) -> int:
    """Append messages in order; returns how many are not summarised."""
    await conn.execute(
        f"""
        INSERT INTO orchestrator.sessions (tenant_id, user_id, session_id)
        VALUES ({TENANT}, %s, %s)
        ON CONFLICT (tenant_id, user_id, session_id)
            DO UPDATE SET update_time = excluded.update_time
        """,
        (user_id, session_id),
    )
    # The session's row is locked by now, so that the messages of two turns never interleave.
    async with conn.cursor() as messages:
        await messages.executemany(
            f"""
            INSERT INTO orchestrator.session_messages
                (tenant_id, user_id, session_id, role, text, run_id)
            VALUES ({TENANT}, %s, %s, %s, %s, %s)
            """,
            [(user_id, session_id, one.role, one.text, run_id) for one in lines],
        )
    cursor = await conn.execute(
        f"""
        SELECT count(*) AS open FROM orchestrator.session_messages AS m
        JOIN orchestrator.sessions AS s ON s.tenant_id = {TENANT} AND s.user_id = m.user_id
         AND s.session_id = m.session_id
        WHERE m.tenant_id = {TENANT} AND m.user_id = %s AND m.session_id = %s
          AND m.seq > s.summarised_seq
        """,
        (user_id, session_id),
    )
    row = await cursor.fetchone()
    return int(row["open"]) if row else 0


async def compact(
    conn: Connection, user_id: str, session_id: str, until_seq: int, summary: str
) -> None:
    """Let `summary` stand for every message up to `until_seq`. The messages themselves stay."""
    await conn.execute(
        f"""
        UPDATE orchestrator.sessions SET summary = %s, summarised_seq = %s, update_time = now()
        WHERE tenant_id = {TENANT} AND user_id = %s AND session_id = %s AND summarised_seq < %s
        """,
        (summary, until_seq, user_id, session_id, until_seq),
    )


async def purge(conn: Connection, days: int) -> int:
    """Delete sessions without a turn for `days`, and of the others the messages of that age that
    stand in the summary; returns the number of sessions.
    """
    cursor = await conn.execute(
        f"""
        DELETE FROM orchestrator.sessions
        WHERE tenant_id = {TENANT} AND update_time < now() - make_interval(days => %s)
        RETURNING user_id, session_id
        """,
        (days,),
    )
    gone = await cursor.fetchall()
    await conn.execute(
        f"""
        DELETE FROM orchestrator.session_messages
        WHERE tenant_id = {TENANT} AND (user_id, session_id) IN (
            SELECT u, s FROM unnest(%s::text[], %s::text[]) AS one (u, s))
        """,
        ([row["user_id"] for row in gone], [row["session_id"] for row in gone]),
    )
    await conn.execute(
        f"""
        DELETE FROM orchestrator.session_messages AS m USING orchestrator.sessions AS s
        WHERE m.tenant_id = {TENANT} AND s.tenant_id = {TENANT}
          AND s.user_id = m.user_id AND s.session_id = m.session_id
          AND m.seq <= s.summarised_seq AND m.create_time < now() - make_interval(days => %s)
        """,
        (days,),
    )
    return len(gone)
