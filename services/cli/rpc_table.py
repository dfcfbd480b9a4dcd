"""`python -m services.cli.rpc_table`: the table of all RPCs, and whether this version serves them.

Not a command of `nianlun`: it imports every service.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Final

import typer
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions

from nianlun.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from nianlun.memory.v1 import memory_pb2, memory_pb2_grpc
from nianlun.orchestrator.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from nianlun.retriever.v1 import retriever_pb2, retriever_pb2_grpc
from services.common.errors import StartupError
from services.embedder.servicer import EmbedderServicer
from services.memory.servicer.servicer import MemoryServicer
from services.orchestrator.servicer import OrchestratorServicer
from services.retriever.servicer import RetrieverServicer

BEGIN: Final = "<!-- status:begin -->"
END: Final = "<!-- status:end -->"

# Contract, what protoc made of it (answers UNIMPLEMENTED), and what we serve.
SERVICES: Final = (
    (embedder_pb2, embedder_pb2_grpc.EmbedderServiceServicer, EmbedderServicer),
    (retriever_pb2, retriever_pb2_grpc.RetrieverServiceServicer, RetrieverServicer),
    (memory_pb2, memory_pb2_grpc.MemoryServiceServicer, MemoryServicer),
    (orchestrator_pb2, orchestrator_pb2_grpc.OrchestratorServiceServicer, OrchestratorServicer),
)


def render() -> str:
    """The table as Markdown, one row an RPC."""
    rows = ["| service | RPC | kind | repeatable | served |", "|---|---|---|---|---|"]
    for contract, base, servicer in SERVICES:
        (service,) = contract.DESCRIPTOR.services_by_name.values()
        rows += [_row(service, method, base, servicer) for method in service.methods]
    return "\n".join(rows)


def _row(service: ServiceDescriptor, method: MethodDescriptor, base: type, servicer: type) -> str:
    level = MethodOptions.IdempotencyLevel.Name(method.GetOptions().idempotency_level)
    repeatable = {"NO_SIDE_EFFECTS": "reads", "IDEMPOTENT": "by request_id"}[level]
    kind = "unary"
    if method.server_streaming:
        kind = "server stream"
    elif method.client_streaming:
        kind = "client stream"
    inherited = inspect.getattr_static(base, method.name)
    served = inspect.getattr_static(servicer, method.name) is not inherited
    name = service.name.removesuffix("Service").lower()
    return f"| {name} | `{method.name}` | {kind} | {repeatable} | {'yes' if served else 'no'} |"


def merged(text: str) -> str:
    """``text`` with the table between its two marks; StartupError when a mark is missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise StartupError(f"the file has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{render()}\n{END}{after}"


def rpcs(
    write: Annotated[
        Path | None, typer.Option(help="File whose table is renewed; printed without it.")
    ] = None,
) -> None:
    """Print the table of all RPCs as Markdown."""
    if write is None:
        typer.echo(render())
        return
    write.write_text(merged(write.read_text(encoding="utf-8")), encoding="utf-8")
    typer.echo(f"wrote {write}")


if __name__ == "__main__":
    typer.run(rpcs)
