"""The whole life of a stack: real PostgreSQL, real processes, stand-ins for the services."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from services.local.errors import LocalError
from services.local.home import Home
from services.local.stack import REPOSITORY, launch

_STAND_IN = """
import os, signal, sys, threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, HTTPServer

name = sys.argv[1]
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
if name == "worker":
    stop.wait()
    sys.exit(0)
host, port = os.environ[f"NIANLUN_{name.upper()}_LISTEN"].split(":")
if name == "gateway":
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200); self.end_headers()
    server = HTTPServer((host, int(port)), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
else:
    import grpc
    from grpc_health.v1 import health, health_pb2_grpc
    server = grpc.server(futures.ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    server.add_insecure_port(f"{host}:{port}")
    server.start()
print(f"{name} is up", flush=True)
stop.wait()
print(f"{name} drains", flush=True)
"""

_LAUNCHER = """
import sys, time
from pathlib import Path
from services.local.home import Home
from services.local.stack import launch
with launch(Home(Path(sys.argv[1])), procfile=Path(sys.argv[2])) as stack:
    print(stack.info.pid, flush=True)
    time.sleep(300)
"""


@pytest.fixture(scope="module")
def procfile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("procfile")
    (folder / "stand_in.py").write_text(_STAND_IN)
    names = ("embedder", "retriever", "memory", "orchestrator", "gateway", "worker")
    path = folder / "Procfile"
    path.write_text("".join(f"{name}: python stand_in.py {name}\n" for name in names))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("stack") / "home")


@pytest.fixture
def killed(home: Home, procfile: Path) -> Iterator[subprocess.Popen[str]]:
    """A launcher that has started a stack and waits to be killed."""
    with subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER, str(home.root), str(procfile)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    ) as launcher:
        yield launcher
        launcher.kill()


def _all_gone(processes: list[psutil.Process], within_s: float = 20.0) -> list[psutil.Process]:
    """Those still running after a while. A zombie has ended: who has to clear it away is not us."""
    deadline = time.monotonic() + within_s
    while (alive := [each for each in processes if _runs(each)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _everything(pid: int) -> list[psutil.Process]:
    owner = psutil.Process(pid)
    return [owner, *owner.children(recursive=True)]


def test_start_serve_stop_twice_in_a_row(home: Home, procfile: Path) -> None:
    keys = []
    for _ in range(2):
        steps: list[str] = []
        with launch(home, procfile=procfile, report=steps.append) as stack:
            processes = _everything(stack.info.pid)
            keys.append(stack.info.key)
            assert home.read_info() == stack.info
            assert home.key.stat().st_mode & 0o777 == 0o600
            with psycopg.connect(stack.info.dsn) as connection:
                connection.execute("SELECT 1")
        assert _all_gone(processes) == []
        assert home.read_info() is None
        assert "starting PostgreSQL" in steps
        assert home.log.read_text().count("drains") == 5
    assert keys[0] == keys[1]


def test_a_second_stack_is_told_that_the_folder_is_in_use(home: Home, procfile: Path) -> None:
    with (
        launch(home, procfile=procfile),
        pytest.raises(LocalError, match="in use by another stack"),
        launch(home, procfile=procfile),
    ):
        pass


def test_a_process_that_fails_at_its_start_is_quoted(home: Home, procfile: Path) -> None:
    failing = procfile.with_name("Procfile.failing")
    failing.write_text(procfile.read_text() + "bad: echo no model here; exit 1\n")
    with pytest.raises(LocalError, match="no model here"), launch(home, procfile=failing):
        pass


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's part is Linux only")
@pytest.mark.parametrize("victim", ["launcher", "owner"])
def test_nothing_is_left_when_a_parent_is_killed(
    killed: subprocess.Popen[str], home: Home, procfile: Path, victim: str
) -> None:
    assert killed.stdout is not None
    owner = int(killed.stdout.readline())
    processes = _everything(owner)
    assert len(processes) > 8
    os.kill(owner if victim == "owner" else killed.pid, signal.SIGKILL)
    assert _all_gone(processes) == []
    time.sleep(0.1)
    with launch(home, procfile=procfile) as stack:  # and the folder is usable at once
        assert stack.info.targets["memory"]
