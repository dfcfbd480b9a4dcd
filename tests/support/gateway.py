"""A gateway in front of a stack of this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from services.common.settings import ChassisSettings
from services.common.telemetry import Telemetry
from services.orchestrator.gateway import app as gateway
from services.orchestrator.gateway.settings import GatewaySettings
from tests.support.stack import Stack

NOBODY = "127.0.0.1:9"


@asynccontextmanager
async def serving(
    stack: Stack, telemetry: Telemetry | None = None, **settings: Any
) -> AsyncIterator[str]:
    """The base URL of a gateway; services that the stack does not run are out of reach."""
    targets = {
        f"{name}_target": stack.target(name) if name in stack.apps else NOBODY
        for name in ("embedder", "retriever", "memory", "orchestrator")
    }
    app = gateway.build(
        GatewaySettings(
            listen="127.0.0.1:0",
            **{"chassis": ChassisSettings(grace_s=1.0, drain_s=0.0), **targets, **settings},
        ),
        telemetry,
    )
    await app.start()
    try:
        yield f"http://127.0.0.1:{app.port}"
    finally:
        await app.stop()
