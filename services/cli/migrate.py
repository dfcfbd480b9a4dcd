"""`nianlun migrate`: bring the schema of a database up to date."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from services.cli.dsn import DsnOption, owner_dsn
from services.common.migrations import runner


def migrate(
    dsn: DsnOption = "",
    set_passwords: Annotated[
        bool,
        typer.Option(
            help="Set the passwords of the service roles from NIANLUN_EMBEDDER_DB_PASSWORD,"
            " NIANLUN_RETRIEVER_DB_PASSWORD and so on."
        ),
    ] = False,
) -> None:
    """Apply all migrations that are missing. Safe to repeat, and to run several times at once."""
    passwords = role_passwords() if set_passwords else None
    report = runner.migrate(owner_dsn(dsn), passwords)
    for step in report.applied:
        typer.echo(f"applied {step}")
    typer.echo("the schema is up to date")


def role_passwords() -> dict[str, str]:
    """Passwords of the service roles that the environment names."""
    found = {}
    for role in runner.ROLES:
        service = role.removeprefix("nianlun_").upper()
        password = os.environ.get(f"NIANLUN_{service}_DB_PASSWORD")
        if password:
            found[role] = password
    return found
