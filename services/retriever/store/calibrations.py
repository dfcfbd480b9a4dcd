"""Calibrations that a tenant has fitted, and the pairs of a waiting calibration."""

from __future__ import annotations

from collections.abc import Sequence

from services.common.db import Connection
from services.retriever.domain import InForce
from services.retriever.store.sqltools import TENANT, rows, run
from services.search.calibration import Calibration


async def get_many(conn: Connection, model_ids: Sequence[str]) -> dict[str, InForce]:
    """The tenant's own calibrations of these models."""
    found = await rows(
        conn,
        f"""SELECT model_id, calibration::text AS calibration, pairs, update_time
            FROM retriever.calibrations WHERE tenant_id = {TENANT} AND model_id = ANY(%s)""",
        (list(model_ids),),
    )
    return {
        row["model_id"]: InForce(
            Calibration.from_json(row["calibration"]),
            fitted=True,
            own=True,
            pairs=row["pairs"],
            update_time=row["update_time"],
        )
        for row in found
    }


async def put(conn: Connection, model_id: str, calibration: Calibration, pairs: int) -> None:
    """Stores a calibration; replaces the model's earlier one."""
    await run(
        conn,
        f"""INSERT INTO retriever.calibrations (tenant_id, model_id, calibration, pairs)
            VALUES ({TENANT}, %s, %s::jsonb, %s)
            ON CONFLICT (tenant_id, model_id) DO UPDATE SET
                calibration = excluded.calibration, pairs = excluded.pairs,
                update_time = excluded.update_time""",
        (model_id, calibration.to_json(), pairs),
    )


async def insert_pairs(
    conn: Connection, upload_id: str, pairs: Sequence[tuple[str, Sequence[str]]]
) -> None:
    """Keeps the (question, document ids) pairs of a waiting calibration."""
    async with conn.cursor() as cursor:
        await cursor.executemany(
            f"""INSERT INTO retriever.calibration_pairs
                    (tenant_id, upload_id, position, query, document_ids)
                VALUES ({TENANT}, %s, %s, %s, %s)""".encode(),
            [(upload_id, n, query, list(ids)) for n, (query, ids) in enumerate(pairs)],
        )


async def pairs(conn: Connection, upload_id: str) -> list[tuple[str, list[str]]]:
    """The pairs of a calibration in their order."""
    found = await rows(
        conn,
        f"""SELECT query, document_ids FROM retriever.calibration_pairs
            WHERE tenant_id = {TENANT} AND upload_id = %s ORDER BY position""",
        (upload_id,),
    )
    return [(row["query"], row["document_ids"]) for row in found]


async def drop_pairs(conn: Connection, upload_id: str) -> None:
    """Forgets the pairs of a finished calibration."""
    await run(
        conn,
        f"DELETE FROM retriever.calibration_pairs WHERE tenant_id = {TENANT} AND upload_id = %s",
        (upload_id,),
    )
