"""The blocking client against a real server."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import grpc
import pytest

from nianlun import (
    AsyncClient,
    Client,
    Connection,
    JobFailedError,
    NianlunError,
    RunFailedError,
    chat_input,
    document,
)
from nianlun.common.v1 import common_pb2
from nianlun.errors import InvalidArgumentError, NotFoundError, UnavailableError
from nianlun.memory.v1 import memory_pb2
from nianlun.operations import memories
from nianlun.orchestrator.v1 import orchestrator_pb2
from nianlun.values import value
from tests.unit.client.conftest import Seen


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with Client(target, key="nl_test") as opened:
        yield opened


def test_a_call_carries_key_request_id_and_deadline(client: Client, seen: Seen) -> None:
    client.append_turn("u", "s", "你好", request_id="r-1")
    assert seen.metadata[0]["authorization"] == "Bearer nl_test"
    assert seen.metadata[0]["x-request-id"] == "r-1"
    assert 25 < seen.remaining_s[0] < 31
    assert seen.requests[0].messages[0].role == memory_pb2.ROLE_USER


def test_a_write_without_request_id_gets_a_fresh_one(client: Client, seen: Seen) -> None:
    client.append_turn("u", "s", "a")
    client.append_turn("u", "s", "a")
    first, second = (request.request_id for request in seen.requests)
    assert first
    assert second
    assert first != second


def test_raw_stubs_carry_the_same(client: Client, seen: Seen) -> None:
    client.memory.AppendTurn(memory_pb2.AppendTurnRequest(request_id="r-2"))
    assert seen.metadata[0]["authorization"] == "Bearer nl_test"
    assert seen.metadata[0]["x-request-id"] == "r-2"
    assert seen.remaining_s[0] > 20


def test_a_call_may_have_a_key_of_its_own(client: Client, seen: Seen) -> None:
    request = memory_pb2.AppendTurnRequest(request_id="r-3")
    client.call(memories.append_turn, request, key="nl_other")
    client.call(memories.append_turn, request)
    assert [each["authorization"] for each in seen.metadata] == [
        "Bearer nl_other",
        "Bearer nl_test",
    ]


def test_with_timeout_changes_the_deadline_only(client: Client, seen: Seen) -> None:
    client.with_timeout(2.0).search("q", "c")
    client.search("q", "c")
    assert seen.remaining_s[0] < 3
    assert seen.remaining_s[1] > 20


def test_a_chat_has_the_deadline_of_streams_also_as_one_whole(
    client: Client, target: str, seen: Seen
) -> None:
    client.chat(chat_input("u", "s", "hi"))
    client.build_context(chat_input("u", "s", "hi"))
    assert 170 < seen.remaining_s[0] < 181
    assert 25 < seen.remaining_s[1] < 31
    with Client(target, timeout_s=5.0, stream_timeout_s=60.0) as other:
        other.chat(chat_input("u", "s", "hi"))
        other.search("q", "c")
    assert 50 < seen.remaining_s[2] < 61
    assert seen.remaining_s[3] < 6
    assert Connection.of("h:1", timeout_s=600.0).stream_timeout_s == 600.0
    assert Connection.of("h:1", timeout_s=600.0, stream_timeout_s=90.0).stream_timeout_s == 90.0


def test_an_idempotent_write_is_retried_with_the_same_request_id(
    client: Client, seen: Seen
) -> None:
    seen.unavailable_first = 2
    assert client.append_turn("u", "s", "a").turn_id == "t1"
    assert len({request.request_id for request in seen.requests}) == 1
    assert len(seen.requests) == 3


def test_errors_are_typed_and_complete(client: Client) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.put_fact("u", "x" * 999, "v")
    error = caught.value
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.reason == common_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert error.metadata == {"limit": "5"}
    assert error.violations[0].field == "attribute"
    assert error.retry_after_s == 2.0
    assert "attribute: is too long" in str(error)
    assert not error.retryable


def test_a_failure_that_no_service_has_told_of_names_the_request_that_was_sent() -> None:
    with Client("127.0.0.1:9", timeout_s=2.0) as nobody:
        with pytest.raises(UnavailableError) as write:
            nobody.append_turn("u", "s", "a", request_id="r-lost")
        with pytest.raises(UnavailableError) as read:
            nobody.load_memory("u", "?")
        with pytest.raises(UnavailableError) as streamed:
            nobody.stream_chat(chat_input("u", "s", "hi"), request_id="r-chat").answer()
        with pytest.raises(UnavailableError) as brought:
            nobody.import_user("u", ["{}"], request_id="r-import")
        with pytest.raises(UnavailableError) as watched:
            list(nobody.watch_memory_job("j"))
    assert write.value.request_id == "r-lost"
    assert streamed.value.request_id == "r-chat"
    assert brought.value.request_id == "r-import"
    assert len(read.value.request_id) == len(watched.value.request_id) == 36


def test_the_id_of_a_read_is_the_one_that_was_sent(client: Client, seen: Seen) -> None:
    seen.hold.clear()
    with pytest.raises(NianlunError) as late:
        client.with_timeout(0.3).search("q", "c")
    seen.hold.set()
    assert late.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert late.value.request_id == seen.metadata[0]["x-request-id"] != ""


def test_not_found_is_its_own_type_and_a_nianlun_error(client: Client) -> None:
    with pytest.raises(NotFoundError):
        client.get_collection("nope")
    with pytest.raises(NianlunError):
        client.get_collection("nope")


def test_a_stream_ends_with_the_whole_answer(client: Client, seen: Seen) -> None:
    with client.stream_chat(chat_input("u", "s", "hi")) as events:
        kinds = [event.WhichOneof("event") for event in events]
    assert kinds == ["text_delta", "text_delta", "completed"]
    assert events.response is not None
    assert events.response.run_id == "r1"
    assert seen.remaining_s[0] > 100


def test_the_answer_of_a_stream_is_what_is_left_of_it(client: Client) -> None:
    with client.stream_chat(chat_input("u", "s", "hi")) as events:
        assert events.response is None
        assert events.answer().run_id == "r1"
        assert events.answer() == events.response


def test_a_run_that_failed_has_no_answer(client: Client) -> None:
    with client.stream_chat(chat_input("u", "s", "doomed")) as events:
        states = [event.completed.state for event in events]
        assert states[-1] == orchestrator_pb2.RUN_STATE_FAILED
        assert events.response is None
        with pytest.raises(RunFailedError, match="run r1 ended without an answer: no JSON came"):
            events.answer()
    with (
        client.stream_chat(chat_input("u", "s", "doomed")) as unread,
        pytest.raises(RunFailedError) as caught,
    ):
        unread.answer()
    assert caught.value.run_id == "r1"
    assert caught.value.error is not None
    assert caught.value.error.reason == common_pb2.ERROR_REASON_MODEL_FAILED


def test_leaving_a_stream_cancels_the_call(client: Client, seen: Seen) -> None:
    with client.stream_chat(chat_input("u", "s", "endless")) as events:
        for _event in events:
            break
    assert seen.stream_cancelled.wait(2.0)


def test_breaking_out_of_a_bare_loop_cancels_the_call(client: Client, seen: Seen) -> None:
    for _event in client.stream_chat(chat_input("u", "s", "endless")):
        break
    assert seen.stream_cancelled.wait(2.0)


def test_waiting_for_a_job_reports_progress(client: Client) -> None:
    states: list[int] = []
    job = client.wait_job(
        client.end_session("u", "s"), progress=lambda each: states.append(each.state)
    )
    assert job.state == common_pb2.JOB_STATE_SUCCEEDED
    assert states[0] == common_pb2.JOB_STATE_QUEUED
    assert states[-1] == common_pb2.JOB_STATE_SUCCEEDED


def test_a_failed_job_is_an_error_with_its_reason(client: Client, seen: Seen) -> None:
    seen.job_end = common_pb2.JOB_STATE_FAILED
    with pytest.raises(JobFailedError, match="the model is gone"):
        client.wait_job(client.end_session("u", "s"))


def test_a_late_job_is_told_from_a_failed_one(client: Client, seen: Seen) -> None:
    seen.job_looks = -1000
    with pytest.raises(JobFailedError, match="it goes on"):
        client.wait_job(client.end_session("u", "s"), timeout_s=0.1)


def test_both_clients_have_the_same_helpers() -> None:
    def public(cls: type) -> set[str]:
        return {name for name in vars(cls) if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        value(datetime(2026, 1, 1))  # noqa: DTZ001


def test_integers_stay_integers_and_lists_lists() -> None:
    made = document("d", "text", metadata={"n": 2**53 + 1, "tags": ["a"], "ok": True}).metadata
    assert made["n"].int_value == 2**53 + 1
    assert list(made["tags"].string_list.values) == ["a"]
    assert made["ok"].bool_value is True


def test_a_missing_local_stack_is_explained(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make serve"):
        Client.local(tmp_path)


def test_addresses_come_from_arguments_then_environment_then_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NIANLUN_MEMORY_TARGET", "memory:1")
    monkeypatch.setenv("NIANLUN_KEY", "nl_env")
    connection = Connection.of({"retriever": "retriever:2"})
    assert connection.targets["memory"] == "memory:1"
    assert connection.targets["retriever"] == "retriever:2"
    assert connection.targets["embedder"] == "127.0.0.1:50051"
    assert connection.key == "nl_env"
    assert "nl_env" not in repr(connection)
    with pytest.raises(ValueError, match="no such service"):
        Connection.of({"memori": "x:1"})


def test_an_error_is_an_ordinary_exception() -> None:
    error = NianlunError(code=grpc.StatusCode.INTERNAL, message="m")
    assert hash(error) != 0
    assert pickle.loads(pickle.dumps(str(error))) == "INTERNAL: m"  # noqa: S301


@pytest.mark.parametrize(
    ("code", "reason", "retryable"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, common_pb2.ERROR_REASON_OVERLOADED, True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, common_pb2.ERROR_REASON_MESSAGE_TOO_LARGE, False),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, common_pb2.ERROR_REASON_BUDGET_EXHAUSTED, False),
        (grpc.StatusCode.ABORTED, common_pb2.ERROR_REASON_ETAG_MISMATCH, False),
        (grpc.StatusCode.FAILED_PRECONDITION, common_pb2.ERROR_REASON_FRESHNESS_NOT_MET, True),
        (grpc.StatusCode.FAILED_PRECONDITION, common_pb2.ERROR_REASON_FAILED_PRECONDITION, False),
        # Nothing of ours: a lost connection, a deadline of the client, an answer too large for it.
        (grpc.StatusCode.UNAVAILABLE, common_pb2.ERROR_REASON_UNSPECIFIED, True),
        (grpc.StatusCode.DEADLINE_EXCEEDED, common_pb2.ERROR_REASON_UNSPECIFIED, True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, common_pb2.ERROR_REASON_UNSPECIFIED, False),
    ],
)
def test_whether_a_call_may_succeed_later_is_a_matter_of_its_reason(
    code: grpc.StatusCode, reason: common_pb2.ErrorReason.ValueType, retryable: bool
) -> None:
    assert NianlunError(code=code, message="", reason=reason).retryable is retryable


def test_an_error_names_what_it_is_about_in_one_line() -> None:
    error = NianlunError(
        code=grpc.StatusCode.NOT_FOUND,
        message="There is no such collection.",
        resource=("collection", "docs"),
        request_id="r1",
    )
    assert str(error) == "NOT_FOUND: There is no such collection; collection docs; request id r1"
