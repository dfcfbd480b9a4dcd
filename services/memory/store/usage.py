"""SQL of usage, budgets and tenant settings."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from psycopg.types.json import Jsonb

from services.common.db import Connection
from services.memory.domain import Budget, TenantSettings


@dataclass(frozen=True)
class UsageRow:
    """Use of one layer on one UTC day."""

    day: date
    layer: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost_micros: int
    failed_calls: int
    stopped_calls: int


SETTINGS_SQL = "SELECT settings, etag FROM memory.settings WHERE tenant_id = %(tenant)s"
TODAY_SQL = (
    "SELECT layer, calls, prompt_tokens + completion_tokens AS tokens FROM memory.usage"
    " WHERE tenant_id = %(tenant)s AND day = (now() AT TIME ZONE 'UTC')::date"
)


def settings_of(row: dict[str, Any] | None) -> TenantSettings:
    """Settings of a row, defaults where there is none."""
    if row is None:
        return TenantSettings()
    stored = row["settings"]
    return TenantSettings(
        half_life_days=stored.get("half_life_days", TenantSettings.half_life_days),
        decay_floor=stored.get("decay_floor", TenantSettings.decay_floor),
        gate=stored.get("gate"),
        summary_every=stored.get("summary_every", TenantSettings.summary_every),
        retention_s=stored.get("retention_s", {}),
        budgets=tuple(
            Budget(b["layer"], b.get("daily_calls"), b.get("daily_tokens"))
            for b in stored.get("budgets", [])
        ),
        etag=row["etag"],
    )


async def settings(conn: Connection, *, lock: bool = False) -> TenantSettings:
    """The tenant's settings."""
    cursor = await conn.execute(SETTINGS_SQL + (" FOR UPDATE" if lock else ""))
    return settings_of(await cursor.fetchone())


async def put_settings(conn: Connection, value: TenantSettings) -> str:
    """Store settings; returns the new etag."""
    etag = uuid.uuid4().hex
    body = {
        "half_life_days": value.half_life_days,
        "decay_floor": value.decay_floor,
        "gate": value.gate,
        "summary_every": value.summary_every,
        "retention_s": dict(value.retention_s),
        "budgets": [
            {"layer": b.layer, "daily_calls": b.daily_calls, "daily_tokens": b.daily_tokens}
            for b in value.budgets
        ],
    }
    await conn.execute(
        "INSERT INTO memory.settings (tenant_id, settings, etag)"
        " VALUES (%(tenant)s, %s, %s)"
        " ON CONFLICT (tenant_id) DO UPDATE SET settings = excluded.settings, etag = excluded.etag",
        (Jsonb(body), etag),
    )
    return etag


async def add(
    conn: Connection,
    layer: str,
    *,
    calls: int = 0,
    prompt_tokens: int = 0,
    completion_tokens: int = 0,
    cost_micros: int = 0,
    failed: int = 0,
    stopped: int = 0,
) -> None:
    """Count use of a layer today (UTC)."""
    await conn.execute(
        "INSERT INTO memory.usage AS u (tenant_id, day, layer, calls, prompt_tokens,"
        " completion_tokens,"
        " cost_micros, failed_calls, stopped_calls)"
        " VALUES (%(tenant)s, (now() AT TIME ZONE 'UTC')::date,"
        " %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (tenant_id, day, layer) DO UPDATE SET calls = u.calls + excluded.calls,"
        " prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,"
        " completion_tokens = u.completion_tokens + excluded.completion_tokens,"
        " cost_micros = u.cost_micros + excluded.cost_micros,"
        " failed_calls = u.failed_calls + excluded.failed_calls,"
        " stopped_calls = u.stopped_calls + excluded.stopped_calls",
        (layer, calls, prompt_tokens, completion_tokens, cost_micros, failed, stopped),
    )


async def between(conn: Connection, first: date, last: date) -> list[UsageRow]:
    """Usage by day and layer."""
    cursor = await conn.execute(
        "SELECT day, layer, calls, prompt_tokens, completion_tokens, cost_micros, failed_calls,"
        " stopped_calls FROM memory.usage WHERE tenant_id = %(tenant)s AND day BETWEEN %s AND %s"
        " ORDER BY day, layer",
        (first, last),
    )
    return [UsageRow(**row) for row in await cursor.fetchall()]


def exhausted(budgets: Sequence[Budget], today: Sequence[dict[str, Any]]) -> list[str]:
    """Layers whose daily budget is used up, given today's rows (layer, calls, tokens)."""
    used = {row["layer"]: (row["calls"], row["tokens"]) for row in today}
    out = []
    for budget in budgets:
        calls, tokens = used.get(budget.layer, (0, 0))
        over_calls = budget.daily_calls is not None and calls >= budget.daily_calls
        if over_calls or (budget.daily_tokens is not None and tokens >= budget.daily_tokens):
            out.append(budget.layer)
    return out


async def exhausted_layers(conn: Connection) -> list[str]:
    """Layers whose budget is used up now."""
    budgets = (await settings(conn)).budgets
    if not budgets:
        return []
    cursor = await conn.execute(TODAY_SQL)
    return exhausted(budgets, await cursor.fetchall())
