"""The base of all interceptors, and the chain that runs them: hooks around a call, one for each
request message and one for each answer.

grpc.aio knows four kinds of handlers, and two ways to write a streaming one (an async generator, or
a coroutine that writes to the context, as Health/Watch does). Whatever comes in, a coroutine goes
out: hooks then run in one task from beginning to end, and context variables set by a hook are seen
by the handler and reset in the same context.

To grpc.aio the whole chain is one interceptor, which keeps what it wrapped: interceptors given
one by one are asked again, and wrap anew, for every call.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, nullcontext
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


@dataclass(frozen=True, slots=True)
class RpcCall:
    """One call as interceptors see it. ``name`` is ``package.Service/Method``, ``service`` the part
    before the slash."""

    name: str
    service: str
    metadata: dict[str, str]
    context: Context
    streaming: bool
    trail: Trail = field(default_factory=Trail)


class Interceptor:
    """One concern of every call; each hook may be left out."""

    def around(self, call: RpcCall) -> AbstractAsyncContextManager[None]:
        """Wraps the whole call; sees the handler's exceptions."""
        return nullcontext()

    def on_request(self, call: RpcCall, request: object) -> None:
        """Sees each request message before the handler does; may raise a DomainError."""

    def on_response(self, call: RpcCall, response: object) -> None:
        """Sees each answer, also each of a stream that an async generator yields."""

    def deserializer(self, inner: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """Replaces how request bytes become a message; the default leaves it alone."""
        return inner


class InterceptorChain(grpc.aio.ServerInterceptor):
    """Interceptors in the order they wrap a call, outermost first."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._interceptors = tuple(interceptors)
        self._around = [i.around for i in interceptors if _has(i, "around")]
        self._on_request = [i.on_request for i in interceptors if _has(i, "on_request")]
        self._on_response = [i.on_response for i in interceptors if _has(i, "on_response")]
        # Only methods that are served get here, so their number is bounded.
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Called by grpc.aio once a call."""
        method = str(handler_call_details.method)
        wrapped = self._wrapped.get(method)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            wrapped = self._wrapped[method] = self._wrap(handler, method)
        return wrapped

    def _wrap(self, handler: Handler, method: str) -> Handler:
        make, inner = _parts(handler)
        name = method[1:]
        service = name.partition("/")[0]
        streaming = bool(handler.request_streaming or handler.response_streaming)
        deserialize = handler.request_deserializer
        for interceptor in reversed(self._interceptors):
            deserialize = interceptor.deserializer(deserialize)

        def begin(context: Context) -> RpcCall:
            return RpcCall(name, service, _ascii_metadata(context), context, streaming)

        async def unary(request: Any, context: Context) -> Any:
            call = begin(context)
            async with AsyncExitStack() as stack:
                for around in self._around:
                    await stack.enter_async_context(around(call))
                response = await inner(self._checked(call, request, handler), context)
                self._answered(call, response)
                return response

        async def stream(request: Any, context: Context) -> None:
            call = begin(context)
            async with AsyncExitStack() as stack:
                for around in self._around:
                    await stack.enter_async_context(around(call))
                responses = inner(self._checked(call, request, handler), context)
                await self._drive(call, responses, context)

        return make(
            stream if handler.response_streaming else unary,
            request_deserializer=deserialize,
            response_serializer=handler.response_serializer,
        )

    def _checked(self, call: RpcCall, request: Any, handler: Handler) -> Any:
        if handler.request_streaming:
            return self._each(call, request)
        self._asked(call, request)
        return request

    def _asked(self, call: RpcCall, request: Any) -> None:
        for hook in self._on_request:
            hook(call, request)

    def _answered(self, call: RpcCall, response: Any) -> None:
        for hook in self._on_response:
            hook(call, response)

    async def _each(self, call: RpcCall, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            self._asked(call, request)
            yield request

    async def _drive(self, call: RpcCall, responses: Any, context: Context) -> None:
        """Run a streaming handler of either kind to its end."""
        if inspect.isawaitable(responses):
            await responses
            return
        # Closed here, in this task: left to the garbage collector, its cleanup would run elsewhere.
        async with aclosing(responses) as stream:
            async for response in stream:
                self._answered(call, response)
                await context.write(response)


def _has(interceptor: Interceptor, hook: str) -> bool:
    return getattr(type(interceptor), hook) is not getattr(Interceptor, hook)


def _parts(handler: Handler) -> tuple[Callable[..., Handler], Callable[..., Any]]:
    """The factory of this kind of handler and the behaviour inside it."""
    if handler.request_streaming and handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler, handler.stream_stream
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler, handler.stream_unary
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler, handler.unary_stream
    return grpc.unary_unary_rpc_method_handler, handler.unary_unary


def _ascii_metadata(context: Context) -> dict[str, str]:
    """Metadata as a mapping; a key sent twice becomes one comma-joined value, as in HTTP, so that
    nobody can hide a second credential behind the first."""
    found: dict[str, str] = {}
    for key, value in context.invocation_metadata() or ():
        if isinstance(value, str):
            found[key] = f"{found[key]},{value}" if key in found else value
    return found
