"""Composition root of the gateway: channels, application, HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from services.common.errors import StartupError
from services.common.grpc.health import Readiness
from services.common.telemetry import Telemetry
from services.orchestrator.gateway import asgi
from services.orchestrator.gateway.backends import Backends, connect
from services.orchestrator.gateway.health import HealthEndpoint
from services.orchestrator.gateway.settings import GatewaySettings

_START_S = 10.0


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own: the process has them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class GatewayApp:
    """The gateway as a process."""

    def __init__(self, settings: GatewaySettings, telemetry: Telemetry | None = None) -> None:
        self._settings = settings
        self._telemetry = telemetry or Telemetry(settings.chassis, "gateway")
        self._readiness = Readiness(
            [("orchestrator", self._orchestrator)],
            interval_s=settings.chassis.readiness_interval_s,
            timeout_s=settings.chassis.readiness_timeout_s,
        )
        self._backends: Backends | None = None
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The port served on, known after `start`."""
        return self._port

    @property
    def readiness(self) -> Readiness:
        """Whether the orchestrator serves."""
        return self._readiness

    async def start(self) -> None:
        """Bind and serve; StartupError when an address is taken."""
        self._telemetry.serve(self._readiness)
        listening = _bind(self._settings.listen)
        self._port = listening.getsockname()[1]
        self._backends = connect(self._settings)
        config = uvicorn.Config(
            asgi.build(self._settings, self._backends, self._telemetry),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=max(1, int(self._settings.chassis.grace_s)),
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(
            self._server.serve(sockets=[listening]), name="gateway-http"
        )
        async with asyncio.timeout(_START_S):
            # uvicorn has a flag here and no event.
            while not self._server.started:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await self._readiness.start(())

    async def stop(self) -> None:
        """Let requests finish, then close."""
        await self._readiness.drain()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.gather(self._serving, return_exceptions=True)
        await self._readiness.stop()
        if self._backends is not None:
            await self._backends.close()
        self._telemetry.close()

    async def _orchestrator(self) -> str | None:
        if self._backends is None:
            return "not started"
        state = await HealthEndpoint(self._backends).state("orchestrator")
        return None if state == "serving" else state


def build(settings: GatewaySettings, telemetry: Telemetry | None = None) -> GatewayApp:
    """The app."""
    return GatewayApp(settings, telemetry)


def _bind(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, int(port)))
    except (OSError, ValueError, OverflowError) as error:
        listening.close()
        raise StartupError(
            f"Cannot listen on {listen}: {error}. Choose another address or stop the process that "
            "has it."
        ) from error
    listening.listen(2_048)
    return listening
