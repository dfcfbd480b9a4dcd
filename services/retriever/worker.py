"""`python -m services.retriever.worker`: the retriever's background worker as a process."""

from __future__ import annotations

import sys

from services.common.process import main
from services.common.settings import load
from services.retriever.app import RetrieverWorker, build_worker
from services.retriever.settings import RetrieverSettings


def build(settings: RetrieverSettings) -> RetrieverWorker:
    """The worker of these settings."""
    return build_worker(settings)


def _build() -> tuple[RetrieverWorker, RetrieverSettings]:
    settings = load(RetrieverSettings)
    return build_worker(settings), settings


if __name__ == "__main__":
    sys.exit(main("retriever-worker", _build))
