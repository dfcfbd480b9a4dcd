"""Between plain Python values and the messages of the contracts."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from google.protobuf import timestamp_pb2

from nianlun.common.v1 import common_pb2

Plain = str | int | float | bool | datetime | Sequence[str]
"""What a metadata value may be. Integers stay integers; a naive datetime is refused."""


def new_request_id() -> str:
    """A fresh request id. Send the same one again to repeat a write without a second effect."""
    return str(uuid.uuid4())


def timestamp(moment: datetime | None) -> timestamp_pb2.Timestamp | None:
    """A protobuf timestamp; None stays None.

    Raises:
        ValueError: the datetime has no time zone, so the instant is not known.
    """
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ValueError("a datetime needs a time zone, e.g. datetime.now(timezone.utc)")
    result = timestamp_pb2.Timestamp()
    result.FromDatetime(moment)
    return result


def value(plain: Plain) -> common_pb2.Value:
    """One metadata value of the right kind."""
    if isinstance(plain, bool):
        return common_pb2.Value(bool_value=plain)
    if isinstance(plain, int):
        return common_pb2.Value(int_value=plain)
    if isinstance(plain, float):
        return common_pb2.Value(double_value=plain)
    if isinstance(plain, str):
        return common_pb2.Value(string_value=plain)
    if isinstance(plain, datetime):
        return common_pb2.Value(timestamp_value=timestamp(plain))
    return common_pb2.Value(string_list=common_pb2.StringList(values=list(plain)))


def value_map(plain: Mapping[str, Plain] | None) -> dict[str, common_pb2.Value]:
    """A metadata map."""
    return {key: value(item) for key, item in (plain or {}).items()}


def seconds(duration: timedelta | float | None) -> float | None:
    """A time span in seconds; None stays None."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
