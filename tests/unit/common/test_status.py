"""The catalogue of errors and its wire form."""

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2

from nianlun.common.v1 import common_pb2
from services.common import errors
from services.common.status import (
    DETAILS_KEY,
    from_item,
    from_rpc_error,
    item_error,
    item_of,
    reason_name,
    reason_number,
    to_status,
)

_PER_ITEM = {"EMPTY_TEXT", "TEXT_TOO_LONG", "MODEL_FAILED"}


def _rpc_error(error: errors.DomainError) -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata((DETAILS_KEY, to_status(error).SerializeToString()))
    return grpc.aio.AioRpcError(error.code, grpc.aio.Metadata(), trailing, error.message)


def _details(error: errors.DomainError, kind: type) -> list:
    found = []
    for packed in to_status(error).details:
        message = kind()
        if packed.Unpack(message):
            found.append(message)
    return found


def test_every_published_reason_has_an_entry_and_no_other_has():
    published = {
        name.removeprefix("ERROR_REASON_")
        for name in common_pb2.ErrorReason.keys()  # noqa: SIM118
    } - {"UNSPECIFIED"}
    assert set(errors.CATALOGUE) == published


@pytest.mark.parametrize("reason", sorted(errors.CATALOGUE))
def test_exactly_one_error_info(reason: str):
    infos = _details(errors.DomainError(reason, metadata={"k": "v"}), error_details_pb2.ErrorInfo)
    assert [(info.reason, info.domain, dict(info.metadata)) for info in infos] == [
        (reason, "nianlun.io", {"k": "v"})
    ]


def test_bad_request_retry_info_and_resource_info():
    bad = _details(errors.invalid_argument("a[1].b", "too long"), error_details_pb2.BadRequest)
    assert bad[0].field_violations[0].field == "a[1].b"
    retry = _details(errors.overloaded(1.5), error_details_pb2.RetryInfo)
    assert (retry[0].retry_delay.seconds, retry[0].retry_delay.nanos) == (1, 500_000_000)
    resource = _details(errors.not_found("job", "j1"), error_details_pb2.ResourceInfo)
    assert (resource[0].resource_type, resource[0].resource_name) == ("job", "j1")


def test_private_detail_is_not_sent():
    status = to_status(errors.internal("password=hunter2"))
    assert b"hunter2" not in status.SerializeToString()


def test_the_largest_status_fits_into_trailers():
    violations = [("很长的字段" * 200, "描述" * 1000)] * 500
    error = errors.DomainError(
        "INVALID_ARGUMENT",
        "m" * 20_000,
        violations=violations,
        metadata={f"k{i}": "值" * 1000 for i in range(50)},
        resource=("t" * 5000, "n" * 5000),
    )
    assert len(to_status(error).SerializeToString()) < 24_000
    assert len(error.message) <= 1_000


def test_a_reason_of_ours_passes_through_a_hop():
    sent = errors.DomainError(
        "OVERLOADED", "busy", metadata={"a": "b"}, retry_after_s=2.0, violations=[("f", "d")]
    )
    got = from_rpc_error(_rpc_error(sent), "embedder")
    assert (got.reason, got.message, dict(got.metadata)) == ("OVERLOADED", "busy", {"a": "b"})
    assert got.retry_after_s == 2.0
    assert got.violations == (("f", "d"),)


def test_a_failure_inside_an_answer_keeps_what_it_says():
    sent = errors.model_unavailable("qwen", message="no answer")
    got = from_item(item_of(sent))
    assert (got.reason, got.message) == ("MODEL_UNAVAILABLE", "no answer")
    assert (dict(got.metadata), got.retry_after_s) == ({"model": "qwen"}, 1.0)
    plain = from_item(item_of(errors.internal("private")))
    assert (plain.reason, plain.retry_after_s, plain.metadata) == ("INTERNAL", None, {})
    assert b"private" not in item_of(errors.internal("private")).SerializeToString()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED"),
        (grpc.StatusCode.UNKNOWN, "INTERNAL"),
        (grpc.StatusCode.INVALID_ARGUMENT, "INTERNAL"),
    ],
)
def test_a_foreign_failure_is_named_after_its_code(code: grpc.StatusCode, reason: str):
    error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "secret text")
    got = from_rpc_error(error, "embedder")
    assert got.reason == reason
    assert "secret" not in got.message


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (errors.database_unavailable(), True),
        (errors.overloaded(), True),
        (errors.deadline_exceeded("x"), True),
        (errors.freshness_not_met(), True),
        (errors.etag_mismatch(), False),
        (errors.message_too_large(2, 1), False),
        (errors.budget_exhausted("extraction"), False),
        (errors.invalid_argument("a", "b"), False),
        (errors.not_found("a", "b"), False),
    ],
)
def test_retryable(error: errors.DomainError, retryable: bool):
    assert error.retryable is retryable


def test_reasons_and_their_numbers():
    for name in errors.CATALOGUE:
        assert reason_name(reason_number(name)) == name
    assert reason_number("FROM_A_NEWER_VERSION") == common_pb2.ERROR_REASON_INTERNAL
    assert reason_name(9_999) == reason_name(0) == "INTERNAL"
    assert len(item_error("NOT_FOUND", "x" * 900).message) == 500
