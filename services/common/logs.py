"""Structured logs: one JSON object a line, stamped with the current call."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from services.common import context
from services.common.settings import ChassisSettings

EventDict = MutableMapping[str, Any]


def configure(settings: ChassisSettings, service: str) -> None:
    """Set up logging of this process; libraries that use ``logging`` go the same way."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
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
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level)
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
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def get(name: str) -> structlog.stdlib.BoundLogger:
    """A logger. Bind ids and counts to it, never user text."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
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
