"""The daily budget of the answering model: counted with each run, asked before the next one."""

from __future__ import annotations

from services.common.db import TENANT, Connection

LAYER = "chat"
_TODAY = "(now() AT TIME ZONE 'UTC')::date"


async def count(conn: Connection, prompt_tokens: int, completion_tokens: int) -> None:
    """Add what a run, or a summary of a session, has used; nothing where no model was called."""
    if not prompt_tokens and not completion_tokens:
        return
    await conn.execute(
        f"""
        INSERT INTO orchestrator.usage AS u
            (tenant_id, day, runs, prompt_tokens, completion_tokens)
        VALUES ({TENANT}, {_TODAY}, 1, %s, %s)
        ON CONFLICT (tenant_id, day) DO UPDATE SET runs = u.runs + 1,
            prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,
            completion_tokens = u.completion_tokens + excluded.completion_tokens
        """,
        (prompt_tokens, completion_tokens),
    )


async def used_up(conn: Connection, daily_tokens: int) -> bool:
    """Whether today's tokens have reached `daily_tokens`; never where that is 0, no limit."""
    if not daily_tokens:
        return False
    cursor = await conn.execute(
        f"""
        SELECT prompt_tokens + completion_tokens >= %s AS used_up FROM orchestrator.usage
        WHERE tenant_id = {TENANT} AND day = {_TODAY}
        """,
        (daily_tokens,),
    )
    row = await cursor.fetchone()
    return bool(row and row["used_up"])
