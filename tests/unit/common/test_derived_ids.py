"""The id of a further write that belongs to a request."""

from __future__ import annotations

from services.common import validate
from services.common.idempotency import derived


def test_it_is_the_same_each_time_and_names_its_part() -> None:
    assert derived("r-1", "reading") == "r-1:reading"


def test_long_ids_that_begin_alike_stay_apart() -> None:
    first, second = (derived("x" * 127 + end, "reading") for end in "ab")
    assert first != second
    assert first == derived("x" * 127 + "a", "reading")
    assert validate.request_id(first) == first


def test_the_longest_id_that_fits_is_kept() -> None:
    assert derived("x" * 120, "reading") == "x" * 120 + ":reading"
    assert derived("x" * 121, "reading") != "x" * 121 + ":reading"
