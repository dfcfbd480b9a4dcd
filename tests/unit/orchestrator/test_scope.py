"""What a scope's conditions mean where no search applies them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from nianlun.common.v1.common_pb2 import StringList, Value
from services.orchestrator import scope
from services.orchestrator.domain import TurnInput

_NOON = Timestamp(seconds=1_700_000_000)
_LIST = Value(string_list=StringList(values=["a", "b"]))


def _turn(ids: tuple[str, ...] = (), **wanted: Value) -> TurnInput:
    when = datetime(2024, 5, 1, tzinfo=UTC)
    return TurnInput(
        message="?", event_time=when, language="en", document_ids=ids, metadata_equals=wanted
    )


@pytest.mark.parametrize(
    ("held", "wanted", "inside"),
    [
        (Value(string_value="a"), Value(string_value="a"), True),
        (Value(string_value="a"), Value(string_value="A"), False),
        (Value(int_value=1), Value(double_value=1.0), True),
        (Value(int_value=1), Value(bool_value=True), False),
        (Value(double_value=1e16), Value(int_value=10**16), True),
        (Value(int_value=10**16), Value(double_value=1e16), True),
        (Value(double_value=1e20), Value(double_value=1e20), True),
        (Value(double_value=1e20), Value(double_value=2e20), False),
        (Value(int_value=1), Value(string_value="1"), False),
        (Value(timestamp_value=_NOON), Value(timestamp_value=_NOON), True),
        (Value(timestamp_value=_NOON), Value(timestamp_value=Timestamp(seconds=1)), False),
        (_LIST, Value(string_value="b"), True),
        (_LIST, Value(string_value="c"), False),
        (_LIST, _LIST, False),
        (Value(string_value="a"), _LIST, False),
    ],
)
def test_a_value_equals_as_it_does_in_a_search(held: Value, wanted: Value, inside: bool) -> None:
    assert scope.holds(_turn(key=wanted), "d", {"key": held, "other": _LIST}) == inside


def test_every_condition_and_the_ids_must_hold() -> None:
    a = Value(string_value="a")
    assert scope.holds(_turn(), "d", {})
    assert not scope.holds(_turn(key=a), "d", {"other": a})
    assert not scope.holds(_turn(key=a, other=a), "d", {"key": a})
    assert scope.holds(_turn(("d", "e"), key=a), "d", {"key": a})
    assert not scope.holds(_turn(("e",), key=a), "d", {"key": a})
