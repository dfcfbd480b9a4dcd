"""Structured logs: one JSON object a line, stamped with the current call."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from services.common import context
from services.common.settings import ChassisSettings

EventDict = MutableMapping[str, Any]


def configure(settings: ChassisSettings, service: str, stream: TextIO | None = None) -> None:
    """Set up logging of this process, to standard error if no other ``stream`` is given; lines of
    libraries that use ``logging`` look the same.

    Our own lines go to the stream directly: through ``logging`` each costs five times as much,
    and there is one for every call.
    """
    out = stream or sys.stderr
    level = logging.getLevelNamesMapping()[settings.log_level]
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _stamp(service),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[*shared, renderer],
        logger_factory=structlog.WriteLoggerFactory(out),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # These tell at INFO what our own lines tell already, with arguments we do not want in a log.
    for noisy in (
        "procrastinate",
        "httpx",
        "httpx2",
        "httpcore",
        "httpcore2",
        "openai",
        "grpc",
        "psycopg.pool",
    ):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, level))


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """A logger. Bind ids and counts to it, never user text."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(name)
    return logger


def _stamp(service: str) -> structlog.typing.Processor:
    def add(_logger: Any, _method: str, event: EventDict) -> EventDict:
        event.setdefault("service", service)
        call = context.current_or_none()
        if call is not None:
            event.setdefault("request_id", call.request_id)
            event.setdefault("rpc", call.rpc)
            if call.caller is not None:
                event.setdefault("tenant", call.caller.tenant_id)
        return event

    return add
