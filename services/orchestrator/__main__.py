"""`python -m services.orchestrator`: settings from the environment, then the app."""

from __future__ import annotations

import sys

from services.common import process
from services.common.settings import load
from services.orchestrator import app
from services.orchestrator.settings import OrchestratorSettings


def _build() -> tuple[process.App, process.HasChassis]:
    settings = load(OrchestratorSettings)
    return app.build(settings), settings


if __name__ == "__main__":
    sys.exit(process.main("orchestrator", _build))
