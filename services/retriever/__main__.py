"""`python -m services.retriever`: the retriever as a process."""

from __future__ import annotations

import sys

from services.common.process import main
from services.common.settings import load
from services.retriever.app import RetrieverApp, build
from services.retriever.settings import RetrieverSettings


def _build() -> tuple[RetrieverApp, RetrieverSettings]:
    settings = load(RetrieverSettings)
    return build(settings), settings


if __name__ == "__main__":
    sys.exit(main("retriever", _build))
