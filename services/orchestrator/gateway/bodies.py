"""Reading request bodies and writing server-sent events."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from services.orchestrator.gateway.errors import bad_request


async def read_json(request: Request) -> dict[str, Any]:
    """The body as a JSON object; 400 for anything else."""
    raw = await request.body()
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        raise bad_request("the body is no JSON", code="invalid_json") from None
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object", code="invalid_json")
    return value


def sse(value: dict[str, Any]) -> bytes:
    """One server-sent event with a JSON object."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"
