"""Boundary rules: every bound that a contract comment states is enforced with one of these.

All functions raise ``errors.invalid_argument`` with the field's path, and return the value in the
form that is stored: text sanitised (NFC, no NUL, no lone surrogate, no control character).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from google.protobuf.timestamp_pb2 import Timestamp

from nianlun.common.v1 import common_pb2
from services.common import errors, unicode
from services.common.pages import Page, page

__all__ = [
    "Page",
    "count",
    "ident",
    "number",
    "one_of_enum",
    "page",
    "request_id",
    "sanitise",
    "slug",
    "text",
    "timestamp",
    "value_map",
    "value_map_message",
]

Json = str | int | float | bool | list[str] | dict[str, str]

_SURROGATE = re.compile("[\ud800-\udfff]")
# C0 without tab, newline and carriage return; DEL; C1. NUL has a rule of its own.
_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ANY_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,126}[a-z0-9])?")
_MAX_VALUE_CHARS = 1_024
_MAX_LIST = 64
TIMESTAMP = "$timestamp"
DOUBLE = "$double"
# From here on a double has no fraction, and Python writes it with an exponent, which jsonb drops.
_WHOLE_FROM = 1e16


class EnumType(Protocol):
    """A generated enum, for instance ``common_pb2.JobState``."""

    def values(self) -> Sequence[int]:
        """The numbers the contract knows."""


def sanitise(value: str) -> tuple[str, tuple[str, ...]]:
    """Clean text and the names of the changes made: nul_removed, surrogate_replaced,
    control_removed, nfc."""
    if value.isascii() and value.isprintable():
        return value, ()
    changes = []
    if "\x00" in value:
        value = value.replace("\x00", "")
        changes.append("nul_removed")
    if _SURROGATE.search(value):
        value = _SURROGATE.sub("\ufffd", value)
        changes.append("surrogate_replaced")
    if _CONTROL.search(value):
        value = _CONTROL.sub("", value)
        changes.append("control_removed")
    bounded = unicode.bounded_marks(value)
    if not unicodedata.is_normalized("NFC", bounded):
        bounded = unicodedata.normalize("NFC", bounded)
    if bounded != value:
        changes.append("nfc")
    value = bounded
    return value, tuple(changes)


def text(
    field: str,
    value: str,
    max_chars: int,
    min_chars: int = 1,
    changes: list[common_pb2.Sanitization] | None = None,
) -> str:
    """Free text of ``min_chars``..``max_chars`` characters after sanitising.

    What was changed is appended to ``changes``. Blank text counts as empty when min_chars > 0.
    """
    if len(value) > max_chars * 4 + 16:
        raise errors.invalid_argument(field, f"must have at most {max_chars} characters")
    clean, what = sanitise(value)
    if what and changes is not None:
        changes.append(common_pb2.Sanitization(field=field, changes=list(what)))
    if len(clean) > max_chars:
        raise errors.invalid_argument(field, f"must have at most {max_chars} characters")
    if min_chars > 0 and (len(clean) < min_chars or not clean.strip()):
        raise errors.invalid_argument(field, f"must have at least {min_chars} characters")
    return clean


def ident(field: str, value: str, max_chars: int = 256) -> str:
    """A client-given id: 1..max_chars characters after NFC, anything but control characters.

    An id is never repaired: what would have to be removed is refused.
    """
    if _ANY_CONTROL.search(value) or _SURROGATE.search(value):
        raise errors.invalid_argument(field, "must not contain control characters")
    if len(value) > max_chars * 4 + 16:
        raise errors.invalid_argument(field, f"must have at most {max_chars} characters")
    clean = unicode.normal("NFC", value)
    if not clean.strip():
        raise errors.invalid_argument(field, "is required")
    if len(clean) > max_chars:
        raise errors.invalid_argument(field, f"must have at most {max_chars} characters")
    return clean


def slug(field: str, value: str) -> str:
    """An id people read in URLs: 1..128 of a-z, 0-9, dot, dash, underscore; ends alphanumeric."""
    if not _SLUG.fullmatch(value):
        raise errors.invalid_argument(
            field, "must be 1..128 of a-z, 0-9, '.', '-', '_' and begin and end alphanumeric"
        )
    return value


def request_id(value: str) -> str:
    """The request_id of a mutating request, 1..128 characters; required."""
    return ident("request_id", value, 128)


def one_of_enum(field: str, value: int, enum: EnumType, *, unspecified_ok: bool = False) -> int:
    """A known enum value; zero (unspecified) only where the contract allows it."""
    if value not in enum.values():
        raise errors.invalid_argument(field, f"{value} is not a known value")
    if value == 0 and not unspecified_ok:
        raise errors.invalid_argument(field, "is required")
    return value


def count(field: str, seq: Sequence[object], maximum: int, minimum: int = 0) -> int:
    """The length of a repeated field, ``minimum``..``maximum``."""
    if len(seq) > maximum:
        raise errors.invalid_argument(field, f"must have at most {maximum} items")
    if len(seq) < minimum:
        raise errors.invalid_argument(field, f"must have at least {minimum} items")
    return len(seq)


def number(field: str, value: float, low: float, high: float) -> float:
    """A finite number ``low``..``high``, both included."""
    if not math.isfinite(value) or not low <= value <= high:
        raise errors.invalid_argument(field, f"must be {low:g}..{high:g}")
    return value


def timestamp(field: str, value: Timestamp | None) -> datetime | None:
    """An aware UTC instant, or None where the message is unset (pass None) or zero."""
    if value is None or (value.seconds == 0 and value.nanos == 0):
        return None
    return instant(field, value)


def instant(field: str, value: Timestamp) -> datetime:
    """An aware UTC instant of a message that is known to be set; zero is the year 1970."""
    try:
        return value.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise errors.invalid_argument(field, "is not a valid timestamp") from None


def value_map(
    field: str, values: Mapping[str, common_pb2.Value], max_entries: int = 64
) -> dict[str, Json]:
    """Metadata as JSON-able values. A timestamp becomes ``{"$timestamp": RFC 3339}``, a double of
    1e16 and more ``{"$double": digits}``: jsonb would give it back as an integer."""
    if len(values) > max_entries:
        raise errors.invalid_argument(field, f"must have at most {max_entries} entries")
    return {
        ident(f"{field} key", key, 128): _value(f"{field}[{key}]", value)
        for key, value in values.items()
    }


def value_map_message(stored: Mapping[str, Json]) -> dict[str, common_pb2.Value]:
    """The inverse of ``value_map``; assign with ``message.metadata[key].CopyFrom(value)``."""
    return {key: _value_message(value) for key, value in stored.items()}


def _value(field: str, value: common_pb2.Value) -> Json:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return text(field, value.string_value, _MAX_VALUE_CHARS, 0)
    if kind == "int_value":
        return value.int_value
    if kind == "double_value":
        if not math.isfinite(value.double_value):
            raise errors.invalid_argument(field, "must be finite")
        if abs(value.double_value) >= _WHOLE_FROM:
            return {DOUBLE: repr(value.double_value)}
        return value.double_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "timestamp_value":
        return {TIMESTAMP: instant(field, value.timestamp_value).isoformat()}
    if kind == "string_list":
        count(field, value.string_list.values, _MAX_LIST)
        return [text(field, item, _MAX_VALUE_CHARS, 0) for item in value.string_list.values]
    raise errors.invalid_argument(field, "has no value")


def _value_message(value: Json) -> common_pb2.Value:
    if isinstance(value, bool):
        return common_pb2.Value(bool_value=value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            # Stored as a double before doubles of this size were marked.
            return common_pb2.Value(double_value=float(value))
        return common_pb2.Value(int_value=value)
    if isinstance(value, float):
        return common_pb2.Value(double_value=value)
    if isinstance(value, str):
        return common_pb2.Value(string_value=value)
    if isinstance(value, list):
        return common_pb2.Value(string_list=common_pb2.StringList(values=value))
    if DOUBLE in value:
        return common_pb2.Value(double_value=float(value[DOUBLE]))
    stamp = Timestamp()
    stamp.FromDatetime(datetime.fromisoformat(value[TIMESTAMP]))
    return common_pb2.Value(timestamp_value=stamp)
