"""Boundary rules."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2
from services.common import context, errors, validate
from services.common.context import CallContext, Caller


def _refused(call, field: str) -> errors.DomainError:
    with pytest.raises(errors.DomainError) as caught:
        call()
    assert caught.value.reason == "INVALID_ARGUMENT"
    assert caught.value.violations[0][0] == field
    return caught.value


@pytest.mark.parametrize(
    ("given_text", "clean", "changes"),
    [
        ("plain", "plain", ()),
        ("abc\x00def", "abcdef", ("nul_removed",)),
        ("Hello \ud800", "Hello \ufffd", ("surrogate_replaced",)),
        ("a\x07b\nc\td", "ab\nc\td", ("control_removed",)),
        ("e\u0301", "é", ("nfc",)),
        ("喜欢吃辣", "喜欢吃辣", ()),
        (
            "\x00\ud800\x01e\u0301",
            "\ufffdé",
            ("nul_removed", "surrogate_replaced", "control_removed", "nfc"),
        ),
    ],
)
def test_sanitise(given_text: str, clean: str, changes: tuple[str, ...]):
    assert validate.sanitise(given_text) == (clean, changes)


@given(st.text(alphabet=st.characters(), max_size=200))
def test_sanitised_text_can_be_stored_and_is_stable(value: str):
    clean, _ = validate.sanitise(value)
    clean.encode()
    assert "\x00" not in clean
    assert validate.sanitise(clean) == (clean, ())


def test_w03_text_records_what_was_changed():
    changes: list[common_pb2.Sanitization] = []
    assert validate.text("messages[1].text", "abc\x00def", 100, changes=changes) == "abcdef"
    assert [(c.field, list(c.changes)) for c in changes] == [("messages[1].text", ["nul_removed"])]


def test_text_bounds_count_characters():
    assert validate.text("f", "字" * 10, 10) == "字" * 10
    _refused(lambda: validate.text("f", "字" * 11, 10), "f")
    _refused(lambda: validate.text("f", "   ", 10), "f")
    _refused(lambda: validate.text("f", "\x00", 10), "f")
    assert validate.text("f", "", 10, 0) == ""


@pytest.mark.parametrize(
    "value", ["a_b", "aXb", "%", "_", "*", "\\", "a:b", "'; DROP TABLE", "用户", "acme-corp"]
)
def test_i01_odd_ids_stay_as_they_are(value: str):
    assert validate.ident("user_id", value) == value


@pytest.mark.parametrize("value", ["", "  ", "a\x00b", "a\nb", "x" * 257, "a\ud800"])
def test_bad_ids_are_refused_not_repaired(value: str):
    _refused(lambda: validate.ident("user_id", value), "user_id")


def test_request_id_is_required():
    _refused(lambda: validate.request_id(""), "request_id")
    _refused(lambda: validate.request_id("x" * 129), "request_id")


def test_enum_values():
    enum = common_pb2.JobState
    assert validate.one_of_enum("s", 1, enum) == 1
    assert validate.one_of_enum("s", 0, enum, unspecified_ok=True) == 0
    _refused(lambda: validate.one_of_enum("s", 0, enum), "s")
    _refused(lambda: validate.one_of_enum("s", 99, enum), "s")


def test_numbers_and_counts():
    assert validate.number("n", 0.5, 0, 1) == 0.5
    for bad in (float("nan"), float("inf"), -0.1, 1.1):
        _refused(lambda bad=bad: validate.number("n", bad, 0, 1), "n")
    _refused(lambda: validate.count("c", [1, 2, 3], 2), "c")
    _refused(lambda: validate.count("c", [], 2, 1), "c")


def test_timestamps():
    assert validate.timestamp("t", None) is None
    assert validate.timestamp("t", Timestamp(seconds=1)) == datetime(
        1970, 1, 1, 0, 0, 1, tzinfo=UTC
    )
    _refused(lambda: validate.timestamp("t", Timestamp(seconds=2**60)), "t")


def test_value_maps_keep_their_types():
    stored = {
        "s": "text",
        "i": 7,
        "d": 1.5,
        "b": True,
        "l": ["a", "b"],
        "t": {"$timestamp": "2024-07-13T00:00:00+00:00"},
    }
    messages = validate.value_map_message(stored)
    assert validate.value_map("metadata", messages) == stored
    assert messages["b"].WhichOneof("kind") == "bool_value"
    assert messages["i"].WhichOneof("kind") == "int_value"


@pytest.mark.parametrize("number", [1e16, -1e16, 2.0**53, 9e18, 2.0**63, 1e20, -1e20, 1.7e308, 5.0])
def test_a_whole_double_stays_one_through_jsonb(number):
    stored = validate.value_map("metadata", {"n": common_pb2.Value(double_value=number)})
    # What jsonb makes of it: exact digits, no exponent.
    through = json.loads(
        json.dumps(stored), parse_float=lambda text: json.loads(f"{Decimal(text):f}")
    )
    assert validate.value_map_message(through)["n"] == common_pb2.Value(double_value=number)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 10**16])
def test_an_integer_stays_one(number):
    stored = validate.value_map("metadata", {"n": common_pb2.Value(int_value=number)})
    assert stored == {"n": number}
    assert validate.value_map_message(stored)["n"].int_value == number


def test_a_double_that_was_stored_without_its_mark_can_be_read():
    assert validate.value_map_message({"n": 10**20})["n"].double_value == 1e20
    assert validate.value_map_message({"n": -(10**300)})["n"].double_value == -1e300


def test_value_maps_refuse_what_json_cannot_hold():
    nan = {"x": common_pb2.Value(double_value=float("nan"))}
    _refused(lambda: validate.value_map("metadata", nan), "metadata[x]")
    _refused(lambda: validate.value_map("metadata", {"x": common_pb2.Value()}), "metadata[x]")


@pytest.fixture
def as_tenant():
    def bind(tenant: str):
        caller = Caller(tenant, "k", frozenset({"read"}), "c")
        return context.bound(CallContext("rpc", "r", caller))

    return bind


def test_page_tokens_come_back(as_tenant):
    with as_tenant("a"):
        request = memory_pb2.ListJobsRequest(page_size=2)
        token = validate.page(request, max_size=10, default=5).next_token("x", 1)
        request.page_token = token
        assert validate.page(request, max_size=10, default=5).cursor == ("x", 1)
        request.page_size = 7  # another size is no other list
        assert validate.page(request, max_size=10, default=5).cursor == ("x", 1)


@pytest.mark.parametrize("size", [0, 5, 10, 1000])
def test_page_sizes(as_tenant, size: int):
    with as_tenant("a"):
        page = validate.page(memory_pb2.ListJobsRequest(page_size=size), max_size=10, default=5)
    assert page.size == (min(size, 10) or 5)


def test_g09_negative_page_size(as_tenant):
    request = memory_pb2.ListJobsRequest(page_size=-1)
    with as_tenant("a"):
        _refused(lambda: validate.page(request, max_size=10, default=5), "page_size")


def test_g09_foreign_page_tokens(as_tenant):
    with as_tenant("a"):
        page = validate.page(memory_pb2.ListJobsRequest(kind="x"), max_size=10, default=5)
        token = page.next_token("cursor")
        for request in (
            memory_pb2.ListJobsRequest(kind="y", page_token=token),
            memory_pb2.ListJobsRequest(kind="x", page_token=token[:-2]),
            memory_pb2.ListJobsRequest(kind="x", page_token="%%%"),
            memory_pb2.ListJobsRequest(kind="x", page_token="页"),
        ):
            _refused(
                lambda request=request: validate.page(request, max_size=10, default=5), "page_token"
            )
    with as_tenant("b"):
        request = memory_pb2.ListJobsRequest(kind="x", page_token=token)
        _refused(lambda: validate.page(request, max_size=10, default=5), "page_token")
