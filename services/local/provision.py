"""What a fresh database needs before services start: the schema, a tenant, and two keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from services.common.auth import admin, keys
from services.common.errors import StartupError
from services.common.migrations import runner
from services.local.errors import LocalError
from services.local.home import TENANT, Home, write_secret


@dataclass(frozen=True)
class Keys:
    """The key callers use, and the one workers use."""

    caller: str = field(repr=False)
    service: str = field(repr=False)


def migrate(owner_dsn: str) -> None:
    """Bring every schema up to date.

    Raises:
        LocalError: the migration fails; the text says why.
    """
    try:
        runner.migrate(owner_dsn)
    except StartupError as error:
        raise LocalError(f"{error} (To start afresh, local data included: make clean)") from error


def ensure_keys(home: Home, owner_dsn: str) -> Keys:
    """The tenant `local` and both keys; those on disk are kept while the database knows them."""
    admin.create_tenant(owner_dsn, TENANT, "local stack", exist_ok=True)
    caller = _known(home.key, owner_dsn)
    if caller is None:
        caller = admin.create_key(owner_dsn, TENANT, ("read", "write", "admin"), name="local").key
        write_secret(home.key, caller)
    service = _known(home.service_key, owner_dsn)
    if service is None:
        service = admin.create_service_key(owner_dsn, name="local workers").key
        write_secret(home.service_key, service)
    return Keys(caller=caller, service=service)


def _known(path: Path, owner_dsn: str) -> str | None:
    """The key in a file, where it is well formed and good in this database."""
    try:
        key = path.read_text().strip()
    except OSError:
        return None
    if not keys.well_formed(key):
        return None
    path.chmod(0o600)
    with psycopg.connect(owner_dsn) as connection:
        found = connection.execute("SELECT 1 FROM auth.verify(%s)", (keys.digest(key),)).fetchone()
    return key if found is not None else None
