"""Which database an administration command works on."""

from __future__ import annotations

from typing import Annotated

import psutil
import typer

from services.common.errors import StartupError
from services.local.home import default_home

VARIABLE = "NIANLUN_MIGRATE_DSN"

DsnOption = Annotated[
    str,
    typer.Option(
        "--dsn",
        envvar=VARIABLE,
        help="Connection string of the database's owner. Default: the running local stack's.",
    ),
]


def owner_dsn(given: str) -> str:
    """The given DSN, else that of the local stack that is running here.

    Raises:
        StartupError: neither is there.
    """
    if given:
        return given
    info = default_home().read_info()
    if info is not None and psutil.pid_exists(info.pid):
        return info.dsn
    raise StartupError(
        f"No database is named. Give --dsn or {VARIABLE}, a connection string of the owner, e.g."
        " postgresql://postgres:secret@localhost/nianlun; or start the local stack: make serve"
    )
