"""`python -m services.memory.worker`: digestion, summaries, vectors, retention."""

from __future__ import annotations

import sys

from services.common.process import main
from services.common.settings import load
from services.memory.app import WorkerApp
from services.memory.app import build_worker as build
from services.memory.settings import MemorySettings

__all__ = ["build"]


def _build() -> tuple[WorkerApp, MemorySettings]:
    settings = load(MemorySettings)
    return build(settings), settings


if __name__ == "__main__":
    sys.exit(main("memory-worker", _build))
