"""The command line `nianlun`: administration of a database, and the local stack."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from services.cli import (
    bootstrap,
    calibrate,
    collections,
    config,
    ingest,
    jobs,
    keys,
    mcp,
    memory,
    migrate,
    models,
    reembed,
    search,
    stack,
)
from services.common.errors import DomainError, StartupError
from services.local.errors import LocalError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Nianlun: memory and retrieval for LLM agents.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"nianlun {version('nianlun')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_version, help="Show the version."),
    ] = False,
) -> None:
    """Nianlun: memory and retrieval for LLM agents."""


app.command("migrate")(migrate.migrate)
app.command("bootstrap")(bootstrap.bootstrap)
app.add_typer(keys.tenants, name="tenants")
app.add_typer(keys.keys, name="keys")
app.add_typer(stack.app, name="stack")
app.add_typer(config.app, name="config")
app.add_typer(models.app, name="models")
app.add_typer(collections.app, name="collections")
app.command("ingest")(ingest.ingest)
app.add_typer(memory.app, name="memory")
app.add_typer(jobs.app, name="jobs")
app.command("search")(search.search)
app.command("reembed")(reembed.reembed)
app.command("calibrate")(calibrate.calibrate)
app.command("mcp", add_help_option=False, context_settings=mcp.CONTEXT)(mcp.mcp)


def main() -> None:
    """Run; an expected failure is one readable line and exit code 1."""
    try:
        app()
    except (DomainError, StartupError, LocalError) as error:
        typer.echo(f"nianlun: {describe(error)}", err=True)
        sys.exit(1)


def describe(error: DomainError | StartupError | LocalError) -> str:
    """What went wrong, with the fields and the resource a domain error names."""
    if not isinstance(error, DomainError):
        return str(error)
    parts = [str(error).removesuffix(".")]
    parts += [f"{field}: {text}" for field, text in error.violations]
    if error.resource is not None:
        parts.append(" ".join(error.resource))
    return "; ".join(parts)


if __name__ == "__main__":
    main()
