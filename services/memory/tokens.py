"""Position tokens: opaque outside, a number and whose it is inside."""

from __future__ import annotations

import re
from typing import Final

from services.common import errors
from services.memory.profile import user_hash

_TOKEN: Final = re.compile(r"p1\.([0-9a-f]{1,16})\.([0-9a-f]{12})")


def position_token(tenant_id: str, user_id: str, position: int) -> str:
    """The token of a position; "" for a user without turns."""
    return f"p1.{position:x}.{user_hash(tenant_id, user_id)[:12]}" if position else ""


def position_of(field: str, token: str, tenant_id: str, user_id: str) -> int:
    """The position of a token; INVALID_ARGUMENT when it is garbled or another user's."""
    match = _TOKEN.fullmatch(token)
    if match is None or match[2] != user_hash(tenant_id, user_id)[:12]:
        raise errors.invalid_argument(field, "is not a position of this user")
    return int(match[1], 16)
