"""Dead letters and files of JSON lines, as the command line takes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from typer.testing import CliRunner

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as pb
from services.cli import jobs
from services.cli.calls import lines_of


class _Refused(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


class _Memory:
    """Failed jobs by page; some calls to replay them are refused."""

    def __init__(self, pages: list[list[str]], refused: dict[str, grpc.StatusCode]) -> None:
        self._pages = pages
        self._refused = refused
        self.replayed: list[str] = []

    def ListJobs(self, request: pb.ListJobsRequest) -> pb.ListJobsResponse:
        assert list(request.states) == [common_pb2.JOB_STATE_FAILED]
        at = int(request.page_token or 0)
        more = at + 1 < len(self._pages)
        return pb.ListJobsResponse(
            jobs=[common_pb2.Job(job_id=i) for i in self._pages[at]],
            next_page_token=str(at + 1) if more else "",
        )

    def ReplayJob(self, request: pb.ReplayJobRequest) -> pb.ReplayJobResponse:
        if request.job_id in self._refused:
            raise _Refused(self._refused[request.job_id])
        self.replayed.append(request.job_id)
        return pb.ReplayJobResponse()


def _replay(memory: _Memory, what: str, monkeypatch: pytest.MonkeyPatch) -> int:
    @contextmanager
    def session(_target: str, _key: str) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(memory=memory)

    monkeypatch.setattr(jobs, "session", session)
    return CliRunner().invoke(jobs.app, ["replay", what]).exit_code


def test_every_dead_letter_is_replayed_also_beside_one_that_is_none_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = {"b": grpc.StatusCode.FAILED_PRECONDITION, "d": grpc.StatusCode.NOT_FOUND}
    memory = _Memory([["a", "b"], ["c", "d"], ["e"]], refused)
    assert _replay(memory, "failed", monkeypatch) == 0
    assert memory.replayed == ["a", "c", "e"]


@pytest.mark.parametrize(
    ("what", "code"),
    [("a", grpc.StatusCode.FAILED_PRECONDITION), ("failed", grpc.StatusCode.UNAVAILABLE)],
)
def test_what_is_refused_for_another_cause_is_an_error(
    what: str, code: grpc.StatusCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = _Memory([["a", "b"]], {"a": code})
    assert _replay(memory, what, monkeypatch) == 1
    assert memory.replayed == []


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_of_json_ends_at_a_line_feed_alone(tmp_path: Path, end: str) -> None:
    texts = ["one\u2028two", "three\u0085four\u2029", "five\x0b\x0c\x1c\r\nsix"]
    written = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    file = tmp_path / "export.jsonl"
    file.write_text("\n".join(written) + end, encoding="utf-8")
    assert [json.loads(line)["text"] for line in lines_of(file)] == texts


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.write_text("")
    assert lines_of(file) == []
