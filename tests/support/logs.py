"""Logging as a service has it, for tests that read the lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TextIO

import structlog

from services.common import logs
from services.common.settings import ChassisSettings


@contextmanager
def logging_to(
    stream: TextIO, service: str, level: Literal["DEBUG", "INFO"] = "DEBUG"
) -> Iterator[None]:
    """Everything this process logs inside the block, as the JSON lines of ``service``."""
    root = logging.getLogger()
    handlers, root_level, config = root.handlers[:], root.level, structlog.get_config()
    logs.configure(ChassisSettings(log_level=level, log_format="json"), service, stream)
    # A logger that is kept would go on writing to this stream after the block.
    structlog.configure(cache_logger_on_first_use=False)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(root_level)
        structlog.configure(**config)
