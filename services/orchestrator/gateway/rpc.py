"""`POST /api/<service>/<Method>`: every RPC of the contract as JSON; streams as server-sent events.

The console stands on it, and so may anything that speaks HTTP only. Bodies are the request messages
in protobuf's JSON form with the field names of the contract.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from services.common.errors import DomainError
from services.common.grpc import client
from services.orchestrator.gateway import errors
from services.orchestrator.gateway.backends import Backends, calling
from services.orchestrator.gateway.bodies import read_json, sse
from services.orchestrator.gateway.errors import HttpError, bad_request

_SERVICES = {
    name: f"nianlun.{name}.v1.{name.capitalize()}Service"
    for name in ("embedder", "retriever", "memory", "orchestrator")
}


class RpcEndpoint:
    """JSON in, one RPC, JSON out."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends
        self._methods = _methods()

    async def call(self, request: Request) -> Response:
        """Call the RPC that the path names."""
        name = (request.path_params["service"], request.path_params["method"])
        method = self._methods.get(name)
        if method is None:
            raise HttpError(404, f"There is no RPC {name[0]}/{name[1]}", code="unknown_rpc")
        if method.client_streaming:
            raise HttpError(501, f"{method.name} takes a stream: use gRPC", code="unimplemented")
        message = _parsed(method, await read_json(request) if await request.body() else {})
        stub = getattr(getattr(self._backends, name[0]), method.name)
        if method.server_streaming:
            with calling(request, self._backends.timeout_s):
                events = _messages(stub(message), name[0])
            first = await anext(events, None)
            return StreamingResponse(_sse(first, events), media_type="text/event-stream")
        with calling(request, self._backends.timeout_s):
            return JSONResponse(_shown(await stub(message)))


def _methods() -> dict[tuple[str, str], MethodDescriptor]:
    pool = descriptor_pool.Default()
    return {
        (name, method.name): method
        for name, full_name in _SERVICES.items()
        for method in pool.FindServiceByName(full_name).methods
    }


def _parsed(method: MethodDescriptor, body: dict[str, Any]) -> Message:
    message: Message = message_factory.GetMessageClass(method.input_type)()
    try:
        ParseDict(body, message)
    except ParseError as error:
        raise bad_request(str(error)[:500], code="invalid_json") from None
    except (TypeError, ValueError, RecursionError):
        raise bad_request("the body does not fit the request", code="invalid_json") from None
    return message


async def _messages(call: Any, service: str) -> AsyncGenerator[Message, None]:
    try:
        async for message in client.stream(call, service):
            yield message
    finally:
        call.cancel()


async def _sse(
    first: Message | None, events: AsyncGenerator[Message, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        try:
            if first is not None:
                yield sse(_shown(first))
            async for message in events:
                yield sse(_shown(message))
        except DomainError as error:
            yield sse(errors.domain_body(error)[1])


def _shown(message: Message) -> dict[str, Any]:
    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
