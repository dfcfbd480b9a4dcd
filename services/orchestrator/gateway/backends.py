"""Channels to the four services, and the call context that carries an HTTP caller's key to them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc.aio
from starlette.requests import Request

from nianlun.embedder.v1 import embedder_pb2_grpc
from nianlun.memory.v1 import memory_pb2_grpc
from nianlun.orchestrator.v1 import orchestrator_pb2_grpc
from nianlun.retriever.v1 import retriever_pb2_grpc
from services.common import context, errors
from services.common.context import CallContext, Caller
from services.common.deadlines import Deadline
from services.common.grpc import client
from services.orchestrator.gateway.settings import GatewaySettings

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_KEY = re.compile(r"[\x21-\x7e]{1,256}")


@dataclass(frozen=True)
class Backends:
    """Stubs of the four services over one channel each."""

    embedder: embedder_pb2_grpc.EmbedderServiceAsyncStub
    retriever: retriever_pb2_grpc.RetrieverServiceAsyncStub
    memory: memory_pb2_grpc.MemoryServiceAsyncStub
    orchestrator: orchestrator_pb2_grpc.OrchestratorServiceAsyncStub
    channels: dict[str, grpc.aio.Channel]
    timeout_s: float

    async def close(self) -> None:
        """Close the channels."""
        for channel in self.channels.values():
            await channel.close()


def connect(settings: GatewaySettings) -> Backends:
    """Open channels; nothing is contacted yet."""
    targets = {
        "embedder": settings.embedder_target,
        "retriever": settings.retriever_target,
        "memory": settings.memory_target,
        "orchestrator": settings.orchestrator_target,
    }
    channels = {
        name: client.channel(
            target,
            margin_s=settings.chassis.deadline_margin_s,
            default_timeout_s=settings.timeout_s,
            tls_ca_file=settings.chassis.tls_ca_file,
        )
        for name, target in targets.items()
    }
    return Backends(
        embedder=embedder_pb2_grpc.EmbedderServiceStub(channels["embedder"]),
        retriever=retriever_pb2_grpc.RetrieverServiceStub(channels["retriever"]),
        memory=memory_pb2_grpc.MemoryServiceStub(channels["memory"]),
        orchestrator=orchestrator_pb2_grpc.OrchestratorServiceStub(channels["orchestrator"]),
        channels=channels,
        timeout_s=settings.timeout_s,
    )


def request_id(request: Request) -> str:
    """The id of a request: the caller's X-Request-ID where it is usable, else a new one."""
    given = request.headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


@contextmanager
def calling(request: Request, timeout_s: float) -> Iterator[CallContext]:
    """Calls made inside carry the HTTP caller's key, request id and deadline.

    The services check the key; here it only has to be something that can be sent. UNAUTHENTICATED
    where there is none.
    """
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not _KEY.fullmatch(key):
        raise errors.unauthenticated()
    caller = Caller(tenant_id="", key_id="", scopes=frozenset(), credential=key)
    call = CallContext(
        rpc=f"{request.method} {request.url.path}",
        request_id=request.state.request_id,
        caller=caller,
        deadline=Deadline.after(timeout_s),
    )
    with context.bound(call):
        yield call
