"""Which version of a schema the code needs, and which one the database has."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from psycopg import AsyncConnection
from psycopg.rows import DictRow

SERVICES = Path(__file__).resolve().parents[2]
FOLDERS = {
    "auth": SERVICES / "common" / "migrations",
    "retriever": SERVICES / "retriever" / "migrations",
    "memory": SERVICES / "memory" / "migrations",
    "orchestrator": SERVICES / "orchestrator" / "migrations",
}
"""Schemas in the order they are migrated, and where their steps stand."""

_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_NO_TRANSACTION = "-- nianlun:no-transaction"


@dataclass(frozen=True)
class Step:
    """One migration file. ``checksum`` is the SHA-256 of its text in hex."""

    schema: str
    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Fingerprint that says whether an applied file was edited afterwards."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def transactional(self) -> bool:
        """False where the first line asks for no transaction (CREATE INDEX CONCURRENTLY)."""
        return not self.sql.lstrip().startswith(_NO_TRANSACTION)


def steps(schema: str) -> list[Step]:
    """All steps of ``schema`` in order. Two files with one number are a ValueError."""
    found: dict[int, Step] = {}
    folder = FOLDERS[schema]
    for path in sorted(folder.glob("*.sql")) if folder.is_dir() else []:
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise ValueError(f"migration {path.name} is not named NNNN_name.sql")
        version = int(match.group(1))
        if version in found:
            raise ValueError(f"two migrations of {schema} have the number {version:04d}")
        found[version] = Step(schema, version, match.group(2), path.read_text(encoding="utf-8"))
    return [found[version] for version in sorted(found)]


def expected(schema: str) -> int:
    """The version this code needs: the highest number among its files."""
    return max((step.version for step in steps(schema)), default=0)


async def applied(conn: AsyncConnection[DictRow], schema: str) -> int:
    """The version the database has; 0 where it was never migrated."""
    cursor = await conn.execute("SELECT to_regclass('migrations.applied') AS found")
    row = await cursor.fetchone()
    if row is None or row["found"] is None:
        return 0
    cursor = await conn.execute(
        "SELECT coalesce(max(version), 0) AS version FROM migrations.applied"
        " WHERE schema_name = %s",
        (schema,),
    )
    row = await cursor.fetchone()
    return 0 if row is None else int(row["version"])
