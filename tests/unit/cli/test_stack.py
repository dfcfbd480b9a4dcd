"""`nianlun stack`: where the local stack answers, for people and for shells."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.main import app
from services.local.home import Home, StackInfo

TARGETS = {"memory": "127.0.0.1:5003", "orchestrator": "127.0.0.1:5004"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("NIANLUN_HOME", str(tmp_path))
    return Home(tmp_path)


def test_a_shell_takes_addresses_and_key(home: Home) -> None:
    key = "nl_a'b $HOME"
    home.write_info(StackInfo(TARGETS, "http://127.0.0.1:80", "local", key, "", "", 1))
    done = CliRunner().invoke(app, ["stack", "env"])
    assert done.exit_code == 0, done.output
    names = ("KEY", "MEMORY_TARGET", "ORCHESTRATOR_TARGET", "GATEWAY_URL")
    script = done.output + "".join(f'printf "%s\\n" "$NIANLUN_{name}"\n' for name in names)
    said = subprocess.run(["sh", "-ec", script], env={}, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == [key, *TARGETS.values(), "http://127.0.0.1:80"]


@pytest.mark.parametrize("command", ["env", "status"])
def test_without_a_stack_nothing_is_exported(home: Home, command: str) -> None:
    done = CliRunner().invoke(app, ["stack", command])
    assert done.exit_code == 1
    assert done.stdout == ""
    assert "make serve" in done.stderr
