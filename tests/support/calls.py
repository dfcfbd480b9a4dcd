"""Call any RPC by its name and see what came of it, errors decoded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tests.support import contract
from tests.support.contract import Rpc

Metadata = Sequence[tuple[str, str | bytes]]


@dataclass(frozen=True)
class Outcome:
    """The end of a call. `fields` are those that BadRequest names, `text` everything it said."""

    code: grpc.StatusCode
    messages: list[Any] = field(default_factory=list)
    reason: str = ""
    domain: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    retry_after_s: float | None = None
    resource: str = ""
    text: str = ""
    infos: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.code is grpc.StatusCode.OK

    def holds(self, needle: str) -> bool:
        """Whether a string stands anywhere in what came back, errors included."""
        wanted = needle.encode()
        bodies = [message.SerializeToString() for message in self.messages]
        return any(wanted in body for body in [*bodies, self.text.encode()])


async def invoke(
    channel: grpc.aio.Channel,
    rpc: Rpc,
    request: Message | bytes,
    *,
    metadata: Metadata = (),
    timeout: float | None = 10.0,
) -> Outcome:
    """Call and wait for the end; a server stream is read to its end. Bytes go out as they are."""
    started = monotonic()
    messages: list[Any] = []
    call = _method(channel, rpc)
    try:
        argument = _one(request) if rpc.method.client_streaming else request
        running = call(argument, metadata=tuple(metadata), timeout=timeout)
        if rpc.method.server_streaming:
            try:
                async for message in running:
                    messages.append(message)  # noqa: PERF401 - what came before an error counts
            finally:
                running.cancel()
        else:
            messages.append(await running)
    except grpc.aio.AioRpcError as error:
        return decode(error, messages, monotonic() - started)
    return Outcome(grpc.StatusCode.OK, messages, seconds=monotonic() - started)


def decode(
    error: grpc.aio.AioRpcError, messages: list[Any] | None = None, seconds: float = 0.0
) -> Outcome:
    """What a failed call says, in google.rpc terms."""
    values: dict[str, Any] = {"infos": 0}
    status = rpc_status.from_call(error)
    said = [error.details() or ""]
    for packed in status.details if status is not None else ():
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        retry, about = error_details_pb2.RetryInfo(), error_details_pb2.ResourceInfo()
        if packed.Unpack(info):
            values["infos"] += 1
            values |= {
                "reason": info.reason,
                "domain": info.domain,
                "metadata": dict(info.metadata),
            }
        elif packed.Unpack(bad):
            values["fields"] = tuple(v.field for v in bad.field_violations)
            said += [f"{v.field}: {v.description}" for v in bad.field_violations]
        elif packed.Unpack(retry):
            values["retry_after_s"] = retry.retry_delay.ToTimedelta().total_seconds()
        elif packed.Unpack(about):
            values["resource"] = f"{about.resource_type}/{about.resource_name}"
    return Outcome(error.code(), messages or [], text="\n".join(said), seconds=seconds, **values)


def _method(channel: grpc.aio.Channel, rpc: Rpc) -> Any:
    kinds = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    return kinds[rpc.method.client_streaming, rpc.method.server_streaming](
        rpc.path,
        request_serializer=_serialize,
        response_deserializer=contract.response_class(rpc).FromString,
    )


def _serialize(request: Message | bytes) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


async def _one(request: Message | bytes) -> AsyncIterator[Message | bytes]:
    yield request
