"""Page tokens: opaque, bound to the RPC, the tenant and the filter they were issued for."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass

from google.protobuf.message import Message

from services.common import context, errors

CursorValue = str | int | float


@dataclass(frozen=True)
class Page:
    """One page asked for: how many items, and the cursor they start after (empty: the first)."""

    size: int
    cursor: tuple[CursorValue, ...]
    binding: str

    def next_token(self, *cursor: CursorValue) -> str:
        """The token of the page that starts after ``cursor`` (values the store can order by)."""
        body = json.dumps([self.binding, list(cursor)], ensure_ascii=True, separators=(",", ":"))
        return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def page(request: Message, *, max_size: int, default: int) -> Page:
    """Read page_size and page_token of a list request.

    page_size 0 means ``default``, larger than ``max_size`` means ``max_size``, negative is
    INVALID_ARGUMENT. A token that is garbled, or was issued for another RPC, tenant or filter, is
    INVALID_ARGUMENT too.
    """
    size = int(getattr(request, "page_size", 0))
    token = str(getattr(request, "page_token", ""))
    if size < 0:
        raise errors.invalid_argument("page_size", "must not be negative")
    binding = _binding(request)
    size = min(size or default, max_size)
    return Page(size=size, cursor=_cursor(token, binding) if token else (), binding=binding)


def _binding(request: Message) -> str:
    """A short hash of what a token belongs to: request type, tenant and every filter field."""
    filters = type(request)()
    filters.CopyFrom(request)
    for name in ("page_size", "page_token"):
        if name in filters.DESCRIPTOR.fields_by_name:
            filters.ClearField(name)
    digest = hashlib.sha256()
    digest.update(request.DESCRIPTOR.full_name.encode())
    digest.update(b"\0" + context.current_caller().tenant_id.encode("utf-8", "surrogatepass"))
    digest.update(b"\0" + filters.SerializeToString(deterministic=True))
    return digest.hexdigest()[:16]


def _cursor(token: str, binding: str) -> tuple[CursorValue, ...]:
    try:
        padded = token + "=" * (-len(token) % 4)
        body = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise _foreign() from None
    if not (isinstance(body, list) and len(body) == 2 and body[0] == binding):
        raise _foreign()
    cursor = body[1]
    if not isinstance(cursor, list) or not all(isinstance(v, str | int | float) for v in cursor):
        raise _foreign()
    return tuple(cursor)


def _foreign() -> errors.DomainError:
    return errors.invalid_argument("page_token", "was not issued for this request")
