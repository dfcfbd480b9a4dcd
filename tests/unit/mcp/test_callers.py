"""Who calls, told from headers."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp")

from nianlun_mcp.callers import HttpCallers, RefusedError, StdioCallers
from nianlun_mcp.settings import McpSettings

KEY = {"authorization": "Bearer nl_x"}


@pytest.mark.parametrize(
    ("value", "user"),
    [
        ("u_1", "u_1"),
        ("%", "%"),
        ("a%20b", "a%20b"),
        ("林".encode().decode("latin-1"), "林"),
        ("UTF-8''%E6%9E%97%20%25", "林 %"),
    ],
)
def test_user_ids_of_any_script_pass_through_headers(value: str, user: str) -> None:
    caller = HttpCallers(McpSettings()).of(KEY | {"x-nianlun-user": value})
    assert caller.user_id == user


@pytest.mark.parametrize("value", ["\xff", "UTF-8''%FF"])
def test_a_header_that_is_not_utf8_is_refused(value: str) -> None:
    with pytest.raises(RefusedError, match="UTF-8") as caught:
        HttpCallers(McpSettings()).of(KEY | {"x-nianlun-user": value})
    assert caught.value.status == 400


def test_without_headers_there_is_no_caller() -> None:
    with pytest.raises(RefusedError):
        HttpCallers(McpSettings(user_id="u")).of(None)


def test_the_key_is_not_shown() -> None:
    caller = HttpCallers(McpSettings(user_id="u")).of(KEY)
    assert "nl_x" not in repr(caller)


def test_stdio_needs_a_key_of_its_own() -> None:
    with pytest.raises(RefusedError, match="NIANLUN_API_KEY"):
        StdioCallers(McpSettings(user_id="u"))
