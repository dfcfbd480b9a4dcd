"""`python -m services.memory`: the memory service."""

from __future__ import annotations

import sys

from services.common.process import main
from services.common.settings import load
from services.memory.app import MemoryApp, build
from services.memory.settings import MemorySettings


def _build() -> tuple[MemoryApp, MemorySettings]:
    settings = load(MemorySettings)
    return build(settings), settings


if __name__ == "__main__":
    sys.exit(main("memory", _build))
