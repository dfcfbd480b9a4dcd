"""The stack as people start it: real processes from the Procfile, in a folder of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nianlun import Client
from services.local.home import Home
from services.local.stack import Stack, launch


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """A folder with a short path: PostgreSQL's account passes through it, its socket lies near."""
    folder = Path(tempfile.mkdtemp(prefix="nl-e2e-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def running(home: Path) -> Iterator[Stack]:
    """A running stack; that it leaves nothing behind is checked when it has stopped."""
    with launch(Home(home / "shared")) as stack:
        family = descendants(stack)
        assert len(family) > 6
        yield stack
        family = descendants(stack)
    assert alive(family) == []


@pytest.fixture
def nianlun(running: Stack) -> Iterator[Client]:
    """The Python client, as a user of the local stack makes it."""
    with Client(running.info.targets, key=running.info.key) as client:
        yield client


def descendants(stack: Stack) -> list[psutil.Process]:
    """The owner of a stack and every process below it, PostgreSQL's included."""
    owner = psutil.Process(stack.info.pid)
    return [owner, *owner.children(recursive=True)]


def alive(processes: list[psutil.Process]) -> list[str]:
    """Those that are still there, by name."""
    gone, left = psutil.wait_procs(processes, timeout=10)
    return [" ".join(process.cmdline()) for process in left if process not in gone]
