"""`nianlun stack`: the local stack from anywhere inside the repository."""

from __future__ import annotations

import shlex

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
        typer.echo("no stack is running here; start one with `make serve`", err=True)
        raise typer.Exit(1)
    for name, target in info.targets.items():
        typer.echo(f"{name:<14}{target}")
    typer.echo(f"{'gateway':<14}{info.gateway}")


@app.command("env")
def env() -> None:
    """Print addresses and key of the running stack as shell variables, for programs in any
    language: eval "$(nianlun stack env)".
    """
    info = default_home().read_info()
    if info is None:
        typer.echo("no stack is running here; start one with `make serve`", err=True)
        raise typer.Exit(1)
    values = {"NIANLUN_KEY": info.key, "NIANLUN_GATEWAY_URL": info.gateway}
    values |= {f"NIANLUN_{name.upper()}_TARGET": target for name, target in info.targets.items()}
    for name, value in values.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
