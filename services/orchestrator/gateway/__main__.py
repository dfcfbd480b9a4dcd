"""`python -m services.orchestrator.gateway`: settings from the environment, then the app."""

from __future__ import annotations

import sys

from services.common import process
from services.common.settings import load
from services.orchestrator.gateway import app
from services.orchestrator.gateway.settings import GatewaySettings


def _build() -> tuple[process.App, process.HasChassis]:
    settings = load(GatewaySettings)
    return app.build(settings), settings


if __name__ == "__main__":
    sys.exit(process.main("gateway", _build))
