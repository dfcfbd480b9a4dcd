"""`nianlun tenants` and `nianlun keys`: who may call, and until when."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from services.cli.dsn import DsnOption, owner_dsn
from services.common.auth import admin
from services.local.home import replace_secret

tenants = typer.Typer(no_args_is_help=True, help="Create, disable and enable tenants.")
keys = typer.Typer(no_args_is_help=True, help="Create, list and revoke keys.")


@tenants.command("create")
def create_tenant(tenant_id: str, name: str = "", dsn: DsnOption = "") -> None:
    """Create a tenant."""
    admin.create_tenant(owner_dsn(dsn), tenant_id, name)
    typer.echo(f"created tenant {tenant_id}")


@tenants.command("disable")
def disable_tenant(tenant_id: str, dsn: DsnOption = "") -> None:
    """Refuse all keys of a tenant; takes effect within 30 seconds."""
    admin.set_tenant_disabled(owner_dsn(dsn), tenant_id, True)
    typer.echo(f"disabled tenant {tenant_id}")


@tenants.command("enable")
def enable_tenant(tenant_id: str, dsn: DsnOption = "") -> None:
    """Accept the keys of a disabled tenant again."""
    admin.set_tenant_disabled(owner_dsn(dsn), tenant_id, False)
    typer.echo(f"enabled tenant {tenant_id}")


@keys.command("create")
def create_key(
    tenant_id: str,
    scope: Annotated[
        list[str] | None, typer.Option(help="read, write or admin; may be repeated.")
    ] = None,
    name: str = "",
    days: Annotated[int | None, typer.Option(min=1, help="Days until it expires.")] = None,
    dsn: DsnOption = "",
) -> None:
    """Create a key of a tenant and print it. It is shown this once and stored nowhere."""
    created = admin.create_key(
        owner_dsn(dsn),
        tenant_id,
        scope or ["read", "write"],
        name=name,
        ttl=None if days is None else timedelta(days=days),
    )
    typer.echo(f"key id {created.key_id}", err=True)
    typer.echo(created.key)


@keys.command("create-service")
def create_service_key(name: str = "workers", dsn: DsnOption = "") -> None:
    """Create the key with which workers act for the tenant of each job, and print it."""
    created = admin.create_service_key(owner_dsn(dsn), name=name)
    typer.echo(f"key id {created.key_id}", err=True)
    typer.echo(created.key)


@keys.command("rotate")
def rotate_key(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="The file that holds the key.")
    ],
    dsn: DsnOption = "",
) -> None:
    """Put a new key of the same tenant and scopes into a file. The old key stays good until it is
    revoked: deploy the new one first.
    """
    old_id, created = admin.successor(owner_dsn(dsn), file.read_text().strip())
    replace_secret(file, created.key)
    typer.echo(f"{file} holds a new key ({created.key_id})")
    typer.echo(f"once it is deployed: nianlun keys revoke {old_id}")


@keys.command("list")
def list_keys(tenant: str = "", dsn: DsnOption = "") -> None:
    """List keys; the keys themselves are not known."""
    row = "{:<20} {:<36} {:<16} {:<16} {:<16} {:<16} {}"
    typer.echo(row.format("tenant", "key id", "created", "expires", "revoked", "scopes", "name"))
    for item in admin.list_keys(owner_dsn(dsn), tenant or None):
        times = [_minute(each) for each in (item.create_time, item.expire_time, item.revoke_time)]
        scopes = ",".join(item.scopes)
        typer.echo(row.format(item.tenant_id, item.key_id, *times, scopes, item.name))


@keys.command("revoke")
def revoke_key(key_id: str, dsn: DsnOption = "") -> None:
    """Revoke a key for good; takes effect within 30 seconds."""
    admin.revoke_key(owner_dsn(dsn), key_id)
    typer.echo(f"revoked key {key_id}")


def _minute(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M}"
