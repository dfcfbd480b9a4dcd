"""Where a command calls, and with which key."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli import calls
from services.cli.main import app
from services.local.home import GRPC_SERVICES, Home, StackInfo

TARGETS = {name: f"127.0.0.1:{port}" for port, name in enumerate(GRPC_SERVICES, 6001)}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("NIANLUN_HOME", str(tmp_path))
    for name in ("NIANLUN_KEY", *(f"NIANLUN_{s.upper()}_TARGET" for s in GRPC_SERVICES)):
        monkeypatch.delenv(name, raising=False)
    return Home(tmp_path)


@pytest.fixture
def running(home: Home) -> None:
    home.write_info(StackInfo(TARGETS, "http://127.0.0.1:80", "local", "nl_stack", "", "", 1))


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("target", "key", "where", "whose"),
    [
        ("", "", TARGETS, "nl_stack"),
        ("", "nl_mine", TARGETS, "nl_mine"),
        (TARGETS["memory"], "", dict.fromkeys(TARGETS, TARGETS["memory"]), "nl_stack"),
        ("other:1", "nl_mine", dict.fromkeys(TARGETS, "other:1"), "nl_mine"),
        ("other:1", "", dict.fromkeys(TARGETS, "other:1"), ""),
    ],
)
def test_what_is_not_given_is_the_stacks(
    target: str, key: str, where: dict[str, str], whose: str
) -> None:
    found = calls._connection(target, key)
    assert dict(found.targets) == where
    assert found.key == whose


@pytest.mark.usefixtures("running")
def test_the_environment_names_other_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIANLUN_RETRIEVER_TARGET", "cluster:50052")
    found = calls._connection("", "nl_mine")
    assert found.targets["retriever"] == "cluster:50052"
    assert not set(found.targets.values()) & set(TARGETS.values())
    assert calls._connection("", "").key == ""


def test_without_a_stack_a_key_is_enough() -> None:
    assert calls._connection("", "nl_mine").targets["memory"] == "127.0.0.1:50053"
    done = CliRunner().invoke(app, ["memory", "facts", "u"])
    assert done.exit_code == 1
    assert "make serve" in done.stderr


def test_the_version_is_told() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0
    assert done.stdout.startswith("nianlun 0.")
