"""Logs: one JSON object a line, stamped with the call."""

import io
import json
import logging

from services.common import context, logs
from services.common.context import CallContext, Caller
from tests.support.logs import logging_to


def test_lines_are_json_and_know_the_call() -> None:
    written = io.StringIO()
    caller = Caller("acme", "k", frozenset({"read"}), "nl_secret")
    call = CallContext("nianlun.memory.v1.MemoryService/GetJob", "r1", caller)
    with logging_to(written, "memory", "INFO"), context.bound(call):
        logs.get("test").info("rpc", code="OK", ms=1.5)
        logs.get("test").debug("hidden")
        logging.getLogger("library").warning("from %s", "elsewhere")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["rpc", "from elsewhere"]
    for line in lines:
        assert (line["service"], line["tenant"], line["request_id"]) == ("memory", "acme", "r1")
        assert line["rpc"] == "nianlun.memory.v1.MemoryService/GetJob"
    assert (lines[0]["code"], lines[0]["ms"], lines[0]["level"]) == ("OK", 1.5, "info")
    assert "nl_secret" not in repr(caller)
