"""`nianlun bootstrap`: everything a fresh database needs before services start, in one step."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.dsn import DsnOption, owner_dsn
from services.cli.migrate import role_passwords
from services.common.auth import admin, keys
from services.common.migrations import runner


def bootstrap(
    dsn: DsnOption = "",
    tenant: Annotated[str, typer.Option(help="A tenant to create.")] = "",
    tenant_key: Annotated[
        str,
        typer.Option(envvar="NIANLUN_TENANT_KEY", help="A key to accept for that tenant."),
    ] = "",
    service_key: Annotated[
        str,
        typer.Option(envvar="NIANLUN_SERVICE_KEY", help="The key workers act with."),
    ] = "",
) -> None:
    """Migrate, set the passwords of the service roles, accept the given keys. Safe to repeat.

    Secrets are read from the environment (see deploy/make-secrets.sh), never generated here: a
    deployment's keys come from where it keeps its secrets.
    """
    owner = owner_dsn(dsn)
    for step in runner.migrate(owner, role_passwords()).applied:
        typer.echo(f"applied {step}")
    if tenant:
        admin.create_tenant(owner, tenant, exist_ok=True)
    if tenant and tenant_key:
        admin.adopt_key(owner, tenant, tenant_key, ("read", "write", "admin"), name="bootstrap")
    if service_key:
        admin.adopt_key(owner, keys.SERVICE_TENANT, service_key, ("service",), name="bootstrap")
    typer.echo("the database is ready")
