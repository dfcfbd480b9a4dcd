"""Reading request bodies and writing server-sent events."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from starlette.requests import Request

from services.orchestrator.gateway.errors import bad_request

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_json(request: Request) -> dict[str, Any]:
    """The body as a JSON object; 400 for anything else."""
    raw = await request.body()
    try:
        value = json.loads(raw)
        if _SURROGATE.search(raw):
            # An escape of half a character alone has no UTF-8: it becomes the replacement sign.
            text = json.dumps(value, ensure_ascii=False)
            value = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except (ValueError, RecursionError):
        raise bad_request("the body is no JSON", code="invalid_json") from None
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object", code="invalid_json")
    return value


def sse(value: dict[str, Any]) -> bytes:
    """One server-sent event with a JSON object."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"
