"""`GET /healthz`: what the services behind the gateway say of themselves. Needs no key."""

from __future__ import annotations

import asyncio

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from services.common.errors import DomainError
from services.orchestrator.gateway.backends import Backends

_TIMEOUT_S = 1.5


class HealthEndpoint:
    """200 while the orchestrator serves, else 503; the others may be missing, chats go on."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends

    async def check(self, request: Request) -> Response:
        """The state of each service: "serving", "not_serving" or "unreachable"."""
        names = sorted(self._backends.channels)
        states = await asyncio.gather(*(self.state(name) for name in names))
        found = dict(zip(names, states, strict=True))
        serving = found["orchestrator"] == "serving"
        return JSONResponse(
            {"status": "ok" if serving else "unavailable", "services": found},
            status_code=200 if serving else 503,
        )

    async def state(self, name: str) -> str:
        """One service's state."""
        stub = health_pb2_grpc.HealthStub(self._backends.channels[name])
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_S)
        except (grpc.aio.AioRpcError, DomainError):
            return "unreachable"
        serving = answer.status == health_pb2.HealthCheckResponse.SERVING
        return "serving" if serving else "not_serving"
