"""`nianlun stack`: the local stack from anywhere inside the repository."""

from __future__ import annotations

import typer
from rich.console import Console

from services.local import __main__ as local
from services.local.home import default_home

app = typer.Typer(no_args_is_help=True, help="Run and stop the local stack.")


@app.command("serve")
def serve() -> None:
    """Start the stack and keep it up; Ctrl-C drains."""
    raise typer.Exit(local.serve(Console(highlight=False)))


@app.command("stop")
def stop() -> None:
    """Stop the stack that runs in this folder."""
    raise typer.Exit(local.stop(default_home(), Console(highlight=False)))


@app.command("status")
def status() -> None:
    """Show where the running stack answers."""
    info = default_home().read_info()
    if info is None:
        typer.echo("no stack is running here")
        raise typer.Exit(1)
    for name, target in info.targets.items():
        typer.echo(f"{name:<14}{target}")
    typer.echo(f"{'gateway':<14}{info.gateway}")
