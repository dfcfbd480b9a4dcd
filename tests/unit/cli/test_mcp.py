"""`nianlun mcp`: the server's own options pass through the command line untouched."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from services.cli.main import app

pytest.importorskip("mcp")


def test_its_options_reach_the_server() -> None:
    done = CliRunner().invoke(app, ["mcp", "--http", "nonsense"])
    assert done.exit_code == 2
    assert "HOST:PORT" in done.output


def test_its_help_is_the_servers() -> None:
    done = CliRunner().invoke(app, ["mcp", "--help"])
    assert done.exit_code == 0
    assert "--choose-user" in done.output


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "nianlun_mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver.exceptions", None)
    done = CliRunner().invoke(app, ["mcp"])
    assert done.exit_code == 1
    assert ".venv/bin/pip install -e '.[mcp]'" in done.output
