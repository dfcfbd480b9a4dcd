"""The gRPC server of a service: interceptors, health, reflection, options, drain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from services.common import logs
from services.common.auth import KeyVerifier
from services.common.errors import StartupError
from services.common.grpc import interceptors as chain
from services.common.grpc.health import Readiness
from services.common.grpc.interceptors.auth import required_scopes
from services.common.settings import ChassisSettings
from services.common.telemetry import Telemetry

Registration = tuple[str, Callable[..., None], object]
"""Full name of a service, its generated ``add_XServicer_to_server``, and the servicer."""

_TRANSPORT_SLACK = 4
"""gRPC itself accepts this many times our own limit, so that we refuse with details, not it."""
_LAST_GRACE_S = 0.1
"""What is left for responses to reach the wire when calls have used up the grace."""
_SETTLE_S = 0.2
_LOOPBACK = ("127.", "localhost", "[::1]", "unix:")


def server_options(settings: ChassisSettings) -> list[tuple[str, Any]]:
    """Options of a gRPC server that our clients can live with: pings, sizes, connection age."""
    return [
        # Otherwise a second server on the same port silently takes half of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_message_bytes * _TRANSPORT_SLACK),
        ("grpc.max_send_message_length", -1),
        # A client may ping every 10 s; half of that leaves room for jitter.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.max_connection_age_ms", int(settings.max_connection_age_s * 1000)),
        ("grpc.max_connection_age_grace_ms", int(settings.max_connection_age_grace_s * 1000)),
    ]


class ListenSettings(Protocol):
    """The part of a service's settings that the server reads."""

    @property
    def listen(self) -> str:
        """Address and port; port 0 takes any free one."""

    @property
    def chassis(self) -> ChassisSettings:
        """Limits, TLS, shutdown."""


class GrpcServer:
    """One server. ``start`` binds and serves; ``stop`` drains.

    ``scopes`` overrides what the contract's idempotency levels say of single methods
    (``package.Service/Method`` -> scope).
    """

    def __init__(
        self,
        settings: ListenSettings,
        registrations: Sequence[Registration],
        readiness: Readiness,
        verifier: KeyVerifier,
        telemetry: Telemetry | None = None,
        scopes: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings.chassis
        self._listen = settings.listen
        self._registrations = list(registrations)
        self._readiness = readiness
        self._verifier = verifier
        self._telemetry = telemetry or Telemetry(settings.chassis, "server")
        self._scopes = {**required_scopes(self.services), **(scopes or {})}
        self._drain = chain.DrainInterceptor()
        self._server: grpc.aio.Server | None = None
        self._log = logs.get(__name__)
        self.port = 0

    @property
    def services(self) -> list[str]:
        """Full names of the services registered."""
        return [name for name, _, _ in self._registrations]

    @property
    def readiness(self) -> Readiness:
        """The readiness that health reports."""
        return self._readiness

    async def start(self) -> int:
        """Bind, register and serve; returns the port. StartupError when the address is taken."""
        server = grpc.aio.server(
            interceptors=[chain.InterceptorChain(self._interceptors())],
            options=server_options(self._settings),
        )
        for _, add, servicer in self._registrations:
            add(servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._readiness.servicer, server)
        health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        reflection.enable_server_reflection(
            [*self.services, health_name, reflection.SERVICE_NAME], server
        )
        self.port = self._bind(server)
        await self._readiness.start(self.services)
        await server.start()
        self._server = server
        self._log.info("serving", listen=self._listen, port=self.port, services=self.services)
        return self.port

    async def stop(self) -> None:
        """Report NOT_SERVING, wait until clients have noticed, let calls finish, then close."""
        await self._readiness.drain()
        if self._server is not None:
            await asyncio.sleep(self._settings.drain_s)
            begun = time.monotonic()
            await self._drain.close(self._settings.grace_s)
            # Callers of the last answers may be about to call again: let them be refused, too.
            await asyncio.sleep(min(_SETTLE_S, self._settings.drain_s))
            # Who watches the health has seen NOT_SERVING, and would stay until the grace is over.
            self._readiness.end_watches()
            spent = time.monotonic() - begun
            await self._server.stop(max(_LAST_GRACE_S, self._settings.grace_s - spent))
            self._server = None
        await self._readiness.stop()

    def _interceptors(self) -> list[chain.Interceptor]:
        settings, telemetry = self._settings, self._telemetry
        return [
            chain.RequestIdInterceptor(),
            chain.AccessLogInterceptor(),
            chain.MetricsInterceptor(telemetry.metrics),
            chain.TracingInterceptor(telemetry.tracer),
            chain.ErrorsInterceptor(),
            self._drain,
            chain.DeadlineInterceptor(settings.default_deadline_s),
            chain.AuthInterceptor(self._verifier, self._scopes),
            chain.ValidationInterceptor(settings.max_message_bytes),
            chain.DegradationsInterceptor(telemetry.metrics),
        ]

    def _bind(self, server: grpc.aio.Server) -> int:
        settings = self._settings
        try:
            if settings.tls_cert_file and settings.tls_key_file:
                pair = (settings.tls_key_file.read_bytes(), settings.tls_cert_file.read_bytes())
                port = server.add_secure_port(self._listen, grpc.ssl_server_credentials([pair]))
            else:
                if not self._listen.startswith(_LOOPBACK):
                    self._log.warning("plain_text_beyond_loopback", listen=self._listen)
                port = server.add_insecure_port(self._listen)
        except (RuntimeError, OSError) as error:
            raise StartupError(
                f"Cannot listen on {self._listen}: {error}. Choose another address or stop the"
                " process that has it."
            ) from error
        return int(port)
