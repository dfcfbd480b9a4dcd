"""Processes of the Procfile: read, run, ended together, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from services.local.errors import LocalError
from services.local.processes import read_procfile

# Prints the pid of its one child's process, then runs until a signal comes.
_OWNER = """
import sys
from pathlib import Path
from services.local.processes import ProcessGroup, Tee
group = ProcessGroup({"a": sys.argv[1], "b": sys.argv[2]}, dict(__import__("os").environ),
                     Path("."), Tee((sys.stdout,)))
sys.exit(group.run())
"""


def _start(first: str, second: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _OWNER, first, second], stdout=subprocess.PIPE, text=True
    )


def _wait_for(path: Path) -> int:
    deadline = time.monotonic() + 20
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, "the process did not start"
        time.sleep(0.05)
    return int(path.read_text())


def _gone(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def _sleeper(pid_file: Path) -> str:
    return f"echo $$ > {pid_file}; exec sleep 300"


def test_procfile_commands_run_with_this_python(tmp_path: Path) -> None:
    path = tmp_path / "Procfile"
    path.write_text("memory: python -m services.memory\nother: sleep 1\n")
    commands = read_procfile(path)
    assert commands["memory"] == f"exec '{sys.executable}' -m services.memory"
    assert commands["other"] == "exec sleep 1"


def test_a_missing_procfile_is_explained(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="Run from the repository"):
        read_procfile(tmp_path / "Procfile")


def test_when_one_process_ends_the_others_are_stopped_and_its_code_is_ours(tmp_path: Path) -> None:
    with _start(_sleeper(tmp_path / "pid"), "sleep 1; exit 3") as owner:
        pid = _wait_for(tmp_path / "pid")
        owner.communicate(timeout=30)
    assert owner.returncode == 3
    assert _gone(pid)


def test_a_process_that_ends_well_but_unasked_is_no_clean_end(tmp_path: Path) -> None:
    with _start(_sleeper(tmp_path / "pid"), "sleep 1; exit 0") as owner:
        owner.communicate(timeout=30)
    assert owner.returncode == 1


def test_asked_to_stop_is_a_clean_end(tmp_path: Path) -> None:
    with _start(_sleeper(tmp_path / "pid"), "exec sleep 300") as owner:
        pid = _wait_for(tmp_path / "pid")
        owner.send_signal(signal.SIGTERM)
        owner.communicate(timeout=30)
    assert owner.returncode == 0
    assert _gone(pid)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's part is Linux only")
def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path) -> None:
    with _start(_sleeper(tmp_path / "pid"), "exec sleep 300") as owner:
        pid = _wait_for(tmp_path / "pid")
        monitors = [child.pid for child in psutil.Process(owner.pid).children()]
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        assert _gone(pid)
        assert all(_gone(monitor) for monitor in monitors)
