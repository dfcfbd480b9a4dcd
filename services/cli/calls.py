"""How the commands that talk to services reach them, and how they show a job's progress."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import grpc
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from nianlun import Client
from nianlun.common.v1 import common_pb2
from nianlun.connection import Connection
from nianlun.errors import NianlunError, from_rpc_error
from nianlun.retriever.v1 import retriever_pb2 as pb
from services.local.home import GRPC_SERVICES

ENDED: Final = (
    common_pb2.JOB_STATE_SUCCEEDED,
    common_pb2.JOB_STATE_FAILED,
    common_pb2.JOB_STATE_CANCELLED,
)

TargetOption = Annotated[
    str,
    typer.Option("--target", help="host:port of the services. Default: the running local stack."),
]
KeyOption = Annotated[
    str, typer.Option("--key", envvar="NIANLUN_KEY", help="Bearer key. Default: the stack's.")
]


_PIPE_WIDTH: Final = 240


def whole(header: str) -> Column:
    """A column whose values are there to be copied: never cut."""
    return Column(header, no_wrap=True)


def print_table(table: Table) -> None:
    """Print a table. Nothing reads a pipe at 80 characters, so there it is as wide as it needs."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    console.print(table)


@contextmanager
def session(target: str, key: str) -> Iterator[Client]:
    """A client; a failed call ends the command with one readable line and exit code 1."""
    try:
        connection = _connection(target, key)
    except FileNotFoundError as error:
        typer.echo(f"nianlun: {error}", err=True)
        raise typer.Exit(1) from None
    try:
        with Client.of(connection) as client:
            yield client
    except grpc.RpcError as error:
        typer.echo(f"nianlun: {from_rpc_error(error)}", err=True)
        raise typer.Exit(1) from None
    except NianlunError as error:
        typer.echo(f"nianlun: {error}", err=True)
        raise typer.Exit(1) from None


def _connection(target: str, key: str) -> Connection:
    """Where to call and as whom: what is given or stands in the environment, else the local stack.

    The stack's key goes to the stack alone, never to another address.
    """
    named = target or any(os.environ.get(f"NIANLUN_{s.upper()}_TARGET") for s in GRPC_SERVICES)
    if not named and not key:
        return Connection.local()
    given = Connection.of(target or None, key=key or None)
    try:
        stack = Connection.local()
    except FileNotFoundError:
        return given
    if not named:
        return replace(given, targets=stack.targets)
    if not given.key and set(given.targets.values()) <= set(stack.targets.values()):
        return replace(given, key=stack.key)
    return given


def lines_of(file: Path) -> list[str]:
    """The lines of a file of JSON lines. JSON may hold other characters that end a line
    elsewhere, as U+2028, so only a line feed counts."""
    lines = file.read_text(encoding="utf-8").split("\n")
    return lines if lines[-1] else lines[:-1]


def follow(client: Client, job: common_pb2.Job, label: str, console: Console) -> common_pb2.Job:
    """Shows a progress bar until the job has ended; returns it as it ended."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
    )
    last = job
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=job.total or None, unit=job.unit)
        for update in client.retriever.WatchJob(pb.WatchJobRequest(job_id=job.job_id)):
            last = update.job
            progress.update(task, completed=last.done, total=last.total or None, unit=last.unit)
    return last


def finish(job: common_pb2.Job, console: Console) -> None:
    """Says how a job ended; exit code 1 unless it succeeded."""
    for item in job.item_errors:
        console.print(f"[red]{item.item_id}[/red]: {item.error.message}", highlight=False)
    if job.result:
        console.print(", ".join(f"{k} {v}" for k, v in sorted(job.result.items())))
    if job.state != common_pb2.JOB_STATE_SUCCEEDED:
        name = common_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
        console.print(f"[red]job {job.job_id} {name}[/red] {job.error.message}", highlight=False)
        raise typer.Exit(1)
