"""Channels to other services: the current call's key, request id, trace and deadline go along.

Failures of unary calls arrive as DomainErrors; wrap streams in ``stream``.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from nianlun import transport
from services.common import context, errors
from services.common.auth.keys import SERVICE_TENANT
from services.common.context import CallContext, Caller
from services.common.deadlines import Deadline
from services.common.grpc.interceptors.auth import TENANT_HEADER, encode_tenant
from services.common.grpc.interceptors.request_id import HEADER
from services.common.status import from_rpc_error

T = TypeVar("T")

DEFAULT_TIMEOUT_S = 30.0
MARGIN_S = 0.05

Credential = Callable[[], str | None]


def channel(
    target: str,
    *,
    credential: Credential | None = None,
    margin_s: float = MARGIN_S,
    default_timeout_s: float = DEFAULT_TIMEOUT_S,
    tls_ca_file: Path | None = None,
    max_message_bytes: int = transport.MAX_MESSAGE_BYTES,
) -> grpc.aio.Channel:
    """A channel to ``target`` (``host:port``). Close it with the app.

    ``credential`` gives the key to send; without it, it is the current caller's. A call gets what
    the current call has left, less ``margin_s``, or ``default_timeout_s`` outside of one; a shorter
    timeout given to the stub wins.
    """
    forward = _Forward(credential, margin_s, default_timeout_s)
    arguments: dict[str, Any] = {
        "options": transport.channel_options(max_message_bytes=max_message_bytes),
        "interceptors": [
            _Unary(forward),
            _UnaryStream(forward),
            _StreamUnary(forward),
            _StreamStream(forward),
        ],
    }
    uri = transport.target_uri(target)
    if tls_ca_file is None:
        return grpc.aio.insecure_channel(uri, **arguments)
    secure = grpc.ssl_channel_credentials(tls_ca_file.read_bytes())
    return grpc.aio.secure_channel(uri, secure, **arguments)


@contextmanager
def service_call(
    tenant_id: str,
    service_key: str,
    *,
    rpc: str = "background",
    request_id: str | None = None,
    deadline: Deadline | None = None,
) -> Iterator[CallContext]:
    """Background work on behalf of one tenant: calls made inside carry the service key and name
    the tenant; ``Database.tenant()`` inside means that tenant."""
    caller = Caller(
        tenant_id=tenant_id,
        key_id="service",
        scopes=frozenset({"service"}),
        credential=service_key,
    )
    call = CallContext(
        rpc=rpc, request_id=request_id or uuid.uuid4().hex, caller=caller, deadline=deadline
    )
    with context.bound(call):
        yield call


async def stream(call: Any, service: str) -> AsyncIterator[Any]:
    """The messages of a response stream; failures become DomainErrors, leaving early cancels it.

    ``call`` is what the stub returned (typed stubs say ``UnaryStreamCall[Request, Response]``).
    """
    try:
        async for message in call:
            yield message
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, service) from error
    finally:
        # Breaking out of the loop alone would leave the call running on the server.
        call.cancel()


class _Forward:
    """What is added to every outgoing call."""

    def __init__(
        self, credential: Credential | None, margin_s: float, default_timeout_s: float
    ) -> None:
        self._credential = credential
        self._margin_s = margin_s
        self._default_timeout_s = default_timeout_s
        self._propagator = TraceContextTextMapPropagator()

    def details(
        self, details: grpc.aio.ClientCallDetails, *, streaming: bool
    ) -> grpc.aio.ClientCallDetails:
        """The call's details with metadata and timeout filled in."""
        metadata = grpc.aio.Metadata(*(tuple(details.metadata or ())))
        present = {key for key, _ in metadata}
        for key, value in self._metadata().items():
            if key not in present:
                metadata.add(key, value)
        return grpc.aio.ClientCallDetails(
            details.method,
            self._timeout(details, streaming),
            metadata,
            details.credentials,
            details.wait_for_ready,
        )

    def _metadata(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        call = context.current_or_none()
        key = self._credential() if self._credential else None
        if call is not None:
            if call.request_id.isascii() and call.request_id.isprintable():
                headers[HEADER] = call.request_id
            if call.caller is not None:
                key = key or call.caller.credential
                if "service" in call.caller.scopes and call.caller.tenant_id != SERVICE_TENANT:
                    headers[TENANT_HEADER] = encode_tenant(call.caller.tenant_id)
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._propagator.inject(headers)
        return headers

    def _timeout(self, details: grpc.aio.ClientCallDetails, streaming: bool) -> float | None:
        asked = details.timeout
        deadline = context.current_deadline()
        if deadline is None:
            return asked if asked is not None or streaming else self._default_timeout_s
        left = deadline.remaining() - self._margin_s
        if left <= 0:
            raise errors.deadline_exceeded(service_of(details.method))
        return left if asked is None else min(asked, left)


class _Unary(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, forward: _Forward) -> None:
        self._forward = forward

    async def intercept_unary_unary(
        self, continuation: Any, client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        details = self._forward.details(client_call_details, streaming=False)
        call = await continuation(details, request)
        return await _response(call, details)


class _StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
    def __init__(self, forward: _Forward) -> None:
        self._forward = forward

    async def intercept_stream_unary(
        self,
        continuation: Any,
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        details = self._forward.details(client_call_details, streaming=True)
        call = await continuation(details, request_iterator)
        return await _response(call, details)


class _UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, forward: _Forward) -> None:
        self._forward = forward

    async def intercept_unary_stream(
        self, continuation: Any, client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(
            self._forward.details(client_call_details, streaming=True), request
        )


class _StreamStream(grpc.aio.StreamStreamClientInterceptor):
    def __init__(self, forward: _Forward) -> None:
        self._forward = forward

    async def intercept_stream_stream(
        self,
        continuation: Any,
        client_call_details: grpc.aio.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        return await continuation(
            self._forward.details(client_call_details, streaming=True), request_iterator
        )


async def _response(call: Any, details: grpc.aio.ClientCallDetails) -> Any:
    """Wait for a unary response; give up the call when the waiting task is cancelled."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, service_of(details.method)) from error
    except asyncio.CancelledError:
        call.cancel()
        raise


def service_of(method: str | bytes) -> str:
    """``/nianlun.embedder.v1.EmbedderService/Embed`` -> ``embedder``."""
    path = (method.decode() if isinstance(method, bytes) else method).lstrip("/")
    parts = path.split(".")
    return parts[1] if len(parts) > 2 and parts[0] == "nianlun" else path
