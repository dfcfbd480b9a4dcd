"""`nianlun.testing`: what users of the client put into their own test suites."""

from __future__ import annotations

import asyncio
import builtins
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

import nianlun.testing
from nianlun.errors import NotFoundError
from services.local.errors import LocalError
from services.local.stack import Stack
from tests.support.fake_llm import FakeLlm, text

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SUITE = """
import asyncio

from nianlun import AsyncClient

pytest_plugins = ["nianlun.testing.fixtures"]


def test_one(nianlun_client):
    nianlun_client.append_turn("u", "s", "My name is Lin.")
    assert "Lin" in nianlun_client.load_memory("u", "Who am I?").rendered


def test_another_sees_nothing_of_it(nianlun_client, nianlun_connection):
    assert nianlun_client.load_memory("u", "Who am I?").rendered == ""

    async def same_tenant():
        async with AsyncClient.of(nianlun_connection) as client:
            await client.append_turn("u", "s", "My name is Mo.")

    asyncio.run(same_tenant())
    assert "Mo" in nianlun_client.load_memory("u", "Who am I?").rendered
"""


@pytest.mark.timeout(240)
def test_a_stack_in_a_block_and_nothing_of_it_afterwards(fake_llm: FakeLlm) -> None:
    fake_llm.on(None, text("Hello from the model."))
    steps: list[str] = []
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with nianlun.testing.running(env=fake_llm.environment, report=steps.append) as started:
        folder = started.log.parent
        with started.client() as client:
            answer = client.chat(nianlun.chat_input("u", "s", "Hello"))
            assert answer.answer.text == "Hello from the model."
            client.create_collection("mine")
        # Also from a loop, of another tenant, on the same stack.
        asyncio.run(_as_another_tenant(started))
    assert steps
    assert not folder.exists()
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    assert [p.cmdline() for p in left if p.status() != psutil.STATUS_ZOMBIE] == []


async def _as_another_tenant(started: nianlun.testing.RunningStack) -> None:
    async with nianlun.AsyncClient.of(started.new_tenant()) as client:
        with pytest.raises(NotFoundError):
            await client.get_collection("mine")


async def test_the_asyncio_form_uses_a_stack_that_runs_already(
    running: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIANLUN_TESTING_HOME", str(Path(running.info.log).parent))
    async with nianlun.testing.async_stack() as client:
        await client.append_turn("async", "s", "I live in Xi'an.")
        assert "Xi'an" in (await client.load_memory("async", "Where do I live?")).rendered
    # A stack that was running before runs on.
    assert psutil.pid_exists(running.info.pid)


@pytest.mark.timeout(120)
def test_the_fixtures_keep_tests_apart(running: Stack, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path,
        env=_environment() | {"NIANLUN_TESTING_HOME": str(Path(running.info.log).parent)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_stack_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises((LocalError, OSError)), nianlun.testing.stack(home=tmp_path / "file"):
        pytest.fail("it cannot have started")


def test_without_the_services_the_reason_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any) -> Any:
        if name.startswith("services"):
            raise ModuleNotFoundError("No module named 'services'", name="services")
        return real(name, *args)

    monkeypatch.setattr(builtins, "__import__", missing)
    with (
        pytest.raises(nianlun.testing.NotInstalledError, match="distribution `nianlun`"),
        nianlun.testing.stack(),
    ):
        pytest.fail("it cannot have started")


def _environment() -> Mapping[str, str]:
    root = Path(__file__).resolve().parents[2]
    parts = ("", "clients/python", "protos/gen")
    path = os.pathsep.join(str(root / part) for part in parts)
    return {**os.environ, "PYTHONPATH": path}
