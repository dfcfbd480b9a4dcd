"""Spans and metrics of model calls, by OpenTelemetry's names for generative AI.

Counted are time and tokens; no prompt and no answer ever becomes an attribute.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry.trace import SpanKind, Status, StatusCode

from services.common.telemetry import Telemetry

_OPERATION = "chat"
_PROVIDER = "openai"
"""Whoever answers: the API is OpenAI's."""


@dataclass
class Usage:
    """Tokens of one call, filled in by the one who makes it."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@contextmanager
def model_call(telemetry: Telemetry | None, model: str) -> Iterator[Usage]:
    """Observe one chat completion, whole or streamed; ``telemetry`` None observes nothing."""
    usage = Usage()
    if telemetry is None:
        yield usage
        return
    error = ""
    started = time.perf_counter()
    # Not made the current span: a stream may be closed in another context than it was opened in.
    span = telemetry.tracer.start_span(
        f"{_OPERATION} {model}",
        kind=SpanKind.CLIENT,
        attributes={
            "gen_ai.operation.name": _OPERATION,
            "gen_ai.provider.name": _PROVIDER,
            "gen_ai.request.model": model,
        },
    )
    try:
        yield usage
    except GeneratorExit:
        raise  # the caller has heard enough of a stream
    except BaseException as raised:
        error = _kind_of(raised)
        span.set_attribute("error.type", error)
        span.set_status(Status(StatusCode.ERROR, error))
        raise
    finally:
        tokens = {"input": usage.prompt_tokens, "output": usage.completion_tokens}
        labels = (_OPERATION, _PROVIDER, model)
        metrics = telemetry.metrics
        metrics.model_seconds.labels(*labels, error).observe(time.perf_counter() - started)
        for kind, count in tokens.items():
            if count:
                span.set_attribute(f"gen_ai.usage.{kind}_tokens", count)
                metrics.model_tokens.labels(*labels, kind).observe(count)
        span.end()


def _kind_of(error: BaseException) -> str:
    """A name of few: the reason of one of our errors, else the exception's class."""
    for attribute in ("reason", "kind"):
        found = getattr(error, attribute, None)
        if isinstance(found, str) and found:
            return found
    return type(error).__name__
