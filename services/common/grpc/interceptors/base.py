"""The base of all interceptors: one hook around a call, one for each request message.

grpc.aio knows four kinds of handlers, and two ways to write a streaming one (an async generator, or
a coroutine that writes to the context, as Health/Watch does). Whatever comes in, a coroutine goes
out: hooks then run in one task from beginning to end, and context variables set by a hook are seen
by the handler and reset in the same context.
"""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

# Handlers are generic over message types that only generated code knows.
Handler = Any
Context = grpc.aio.ServicerContext[Any, Any]


@dataclass
class Trail:
    """What inner interceptors find out and outer ones report: mutable, one a call."""

    code: str = "OK"
    reason: str = ""
    tenant_id: str = ""
    detail: str = ""
    degradations: tuple[str, ...] = ()


_TRAIL: contextvars.ContextVar[Trail | None] = contextvars.ContextVar("nianlun_trail", default=None)


@dataclass(frozen=True)
class RpcCall:
    """One call as interceptors see it. ``method`` is ``/package.Service/Method``."""

    method: str
    metadata: dict[str, str]
    context: Context
    streaming: bool
    trail: Trail = field(default_factory=Trail)

    @property
    def service(self) -> str:
        """Full name of the service."""
        return self.method[1:].partition("/")[0]

    @property
    def name(self) -> str:
        """``package.Service/Method``."""
        return self.method[1:]


class Interceptor(grpc.aio.ServerInterceptor):
    """Override ``around`` and, where messages matter, ``on_request``."""

    def around(self, call: RpcCall) -> AbstractAsyncContextManager[None]:
        """Wraps the whole call; sees the handler's exceptions."""
        raise NotImplementedError

    def on_request(self, call: RpcCall, request: object) -> None:
        """Sees each request message before the handler does; may raise a DomainError."""

    def on_response(self, call: RpcCall, response: object) -> None:
        """Sees each answer; of a stream only in the innermost interceptor, which drives it."""

    def deserializer(self, inner: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """Replaces how request bytes become a message; the default leaves it alone."""
        return inner

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Called by grpc.aio once a call."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return self._wrapped(handler, handler_call_details)

    def _wrapped(self, handler: Handler, details: grpc.HandlerCallDetails) -> Handler:
        method = str(details.method)
        make, inner = _parts(handler)
        metadata = _ascii_metadata(details)

        def begin(context: Context) -> RpcCall:
            return RpcCall(
                method=method,
                metadata=metadata,
                context=context,
                streaming=bool(handler.request_streaming or handler.response_streaming),
                trail=_trail(),
            )

        async def unary(request: Any, context: Context) -> Any:
            call = begin(context)
            async with self.around(call):
                response = await inner(self._checked(call, request, handler), context)
                self.on_response(call, response)
                return response

        async def stream(request: Any, context: Context) -> None:
            call = begin(context)
            async with self.around(call):
                responses = inner(self._checked(call, request, handler), context)
                await self._drive(call, responses, context)

        return make(
            stream if handler.response_streaming else unary,
            request_deserializer=self.deserializer(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )

    def _checked(self, call: RpcCall, request: Any, handler: Handler) -> Any:
        if handler.request_streaming:
            return self._each(call, request)
        self.on_request(call, request)
        return request

    async def _each(self, call: RpcCall, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            self.on_request(call, request)
            yield request

    async def _drive(self, call: RpcCall, responses: Any, context: Context) -> None:
        """Run a streaming handler of either kind to its end."""
        if inspect.isawaitable(responses):
            await responses
            return
        # Closed here, in this task: left to the garbage collector, its cleanup would run elsewhere.
        async with aclosing(responses) as stream:
            async for response in stream:
                self.on_response(call, response)
                await context.write(response)


def _parts(handler: Handler) -> tuple[Callable[..., Handler], Callable[..., Any]]:
    """The factory of this kind of handler and the behaviour inside it."""
    if handler.request_streaming and handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler, handler.stream_stream
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler, handler.stream_unary
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler, handler.unary_stream
    return grpc.unary_unary_rpc_method_handler, handler.unary_unary


def _ascii_metadata(details: grpc.HandlerCallDetails) -> dict[str, str]:
    """Metadata as a mapping; a key sent twice becomes one comma-joined value, as in HTTP, so that
    nobody can hide a second credential behind the first."""
    found: dict[str, str] = {}
    for key, value in details.invocation_metadata or ():
        if isinstance(value, str):
            found[key] = f"{found[key]},{value}" if key in found else value
    return found


def _trail() -> Trail:
    """The trail of the call this task serves; each call has a task, hence a context, of its own."""
    trail = _TRAIL.get()
    if trail is None:
        trail = Trail()
        _TRAIL.set(trail)
    return trail
