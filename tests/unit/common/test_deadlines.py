"""Deadlines are instants, not chains of timeouts."""

from types import SimpleNamespace

import pytest

from services.common import context, deadlines, errors
from services.common.context import CallContext
from services.common.deadlines import Deadline


@pytest.fixture(autouse=True)
def _time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "time", SimpleNamespace(monotonic=lambda: 128.0))


def test_a_slice_never_outlives_its_deadline():
    whole = Deadline.after(10)
    assert whole.slice(3).remaining() == 3
    assert whole.slice(30).remaining() == 10
    assert whole.slice(30, margin_s=2).remaining() == 8


def test_an_expired_deadline_has_nothing_left():
    late = Deadline.after(-1)
    assert late.expired
    assert late.remaining() == 0.0


def test_remaining_of_the_current_call():
    assert deadlines.remaining(7.0) == 7.0
    with context.bound(CallContext("rpc", "r", deadline=Deadline.after(2))):
        assert deadlines.remaining(7.0) == 2
        assert deadlines.timeout(1.0) == 1
        assert deadlines.timeout(7.0, margin_s=0.5) == 1.5


def test_narrowed_only_narrows():
    with context.bound(CallContext("rpc", "r", deadline=Deadline.after(2))):
        with context.narrowed(Deadline.after(1)):
            assert deadlines.remaining(9) == 1
        with context.narrowed(Deadline.after(5)):
            assert deadlines.remaining(9) == 2


def test_without_a_caller_nothing_is_allowed():
    with pytest.raises(errors.DomainError, match="UNAUTHENTICATED"):
        context.current_caller()
