"""`python -m services.embedder`: settings from the environment, then serve."""

from __future__ import annotations

import sys

from services.common import process
from services.common.settings import load
from services.embedder.app import build
from services.embedder.settings import EmbedderSettings


def _build() -> tuple[process.App, process.HasChassis]:
    settings = load(EmbedderSettings)
    return build(settings), settings


if __name__ == "__main__":
    sys.exit(process.main("embedder", _build))
