"""Logs: one JSON object a line, stamped with the call."""

import json
import logging

import pytest
import structlog

from services.common import context, logs
from services.common.context import CallContext, Caller
from services.common.settings import ChassisSettings


@pytest.fixture
def _restored():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.usefixtures("_restored")
def test_lines_are_json_and_know_the_call(capsys: pytest.CaptureFixture[str]):
    logs.configure(ChassisSettings(log_level="INFO", log_format="json"), "memory")
    caller = Caller("acme", "k", frozenset({"read"}), "nl_secret")
    with context.bound(CallContext("nianlun.memory.v1.MemoryService/GetJob", "r1", caller)):
        logs.get("test").info("rpc", code="OK", ms=1.5)
        logs.get("test").debug("hidden")
        logging.getLogger("library").warning("from %s", "elsewhere")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["rpc", "from elsewhere"]
    for line in lines:
        assert (line["service"], line["tenant"], line["request_id"]) == ("memory", "acme", "r1")
        assert line["rpc"] == "nianlun.memory.v1.MemoryService/GetJob"
    assert (lines[0]["code"], lines[0]["ms"], lines[0]["level"]) == ("OK", 1.5, "info")
    assert "nl_secret" not in repr(caller)
