"""`nianlun jobs`: background work of the retriever and of memory, dead letters included."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

import grpc
import typer
from rich.table import Table

from nianlun import Client
from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2
from nianlun.retriever.v1 import retriever_pb2
from nianlun.values import new_request_id
from services.cli.calls import KeyOption, TargetOption, print_table, session, whole

app = typer.Typer(no_args_is_help=True, help="Background work: list, replay, cancel.")


class Service(StrEnum):
    """Services that have jobs."""

    MEMORY = "memory"
    RETRIEVER = "retriever"


class State(StrEnum):
    """States of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


# Somebody else has replayed the job, or its time was over.
_MEANWHILE: Final = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND)

ServiceOption = Annotated[Service, typer.Option("--service", help="Whose jobs.")]


def _of(client: Client, service: Service) -> tuple[Any, Any]:
    """(stub, messages) of a service."""
    if service is Service.MEMORY:
        return client.memory, memory_pb2
    return client.retriever, retriever_pb2


def _state(job: common_pb2.Job) -> str:
    return common_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()


def _failed(stub: Any, messages: Any) -> list[str]:
    """All dead letters, read to the last page before any of them changes its state."""
    ids: list[str] = []
    token = ""
    while True:
        page = stub.ListJobs(
            messages.ListJobsRequest(
                states=[common_pb2.JOB_STATE_FAILED], page_size=200, page_token=token
            )
        )
        ids.extend(job.job_id for job in page.jobs)
        token = page.next_page_token
        if not token:
            return ids


@app.command("list")
def list_(
    service: ServiceOption = Service.MEMORY,
    state: Annotated[list[State] | None, typer.Option(help="Only these; may be repeated.")] = None,
    kind: Annotated[str, typer.Option(help="Only this kind.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=200)] = 50,
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """List jobs, newest first. `--state failed` are the dead letters."""
    states = [common_pb2.JobState.Value(f"JOB_STATE_{s.value.upper()}") for s in state or []]
    table = Table(whole("job"), "kind", "state", "done", "attempts", "error", "created")
    with session(target, key) as client:
        stub, messages = _of(client, service)
        page = stub.ListJobs(messages.ListJobsRequest(states=states, kind=kind, page_size=limit))
    for job in page.jobs:
        table.add_row(
            job.job_id,
            job.kind,
            _state(job),
            f"{job.done}/{job.total or '?'} {job.unit}",
            str(job.attempts),
            job.error.message,
            job.create_time.ToJsonString()[:19],
        )
    print_table(table)


@app.command("replay")
def replay(
    job_id: Annotated[str, typer.Argument(help="A job, or `failed` for all dead letters.")],
    service: ServiceOption = Service.MEMORY,
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Queue a failed or cancelled job again."""
    with session(target, key) as client:
        stub, messages = _of(client, service)
        everything = job_id == "failed"
        ids = _failed(stub, messages) if everything else [job_id]
        for one in ids:
            asked = messages.ReplayJobRequest(job_id=one, request_id=new_request_id())
            try:
                stub.ReplayJob(asked)
            except grpc.RpcError as error:
                if not everything or error.code() not in _MEANWHILE:
                    raise
                typer.echo(f"{one} is not failed any more")
            else:
                typer.echo(f"queued {one} again")
        if not ids:
            typer.echo("there are no failed jobs")


@app.command("cancel")
def cancel(
    job_id: str,
    service: ServiceOption = Service.MEMORY,
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Stop a job; one that has ended stays as it is."""
    with session(target, key) as client:
        stub, messages = _of(client, service)
        asked = messages.CancelJobRequest(job_id=job_id, request_id=new_request_id())
        state = _state(stub.CancelJob(asked).job)
    # A running one goes on until its handler looks.
    typer.echo(f"{job_id}: {'will stop' if state == State.RUNNING else state}")
