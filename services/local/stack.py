"""Start a local stack, wait until it serves, and end it again.

``launch`` is what `make serve`, `make demo` and the end-to-end tests use. The stack lives in a
process of its own (``supervisor``), so that the caller may use gRPC freely and ends cleanly.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from services.cli.health import grpc_serving, http_ready
from services.local.errors import LocalError
from services.local.home import Home, StackInfo, default_home

REPOSITORY = Path(__file__).resolve().parents[2]
# The repository's own, where this runs from one. An installed wheel has no such folder.
_ROOT_PROCFILE = REPOSITORY / "Procfile"
_PROCFILE = Path(__file__).with_name("Procfile")
_READY_S = 120.0
_STOP_S = 40.0

Report = Callable[[str], None]


@contextmanager
def launch(
    home: Home | None = None,
    *,
    terminal: bool = False,
    report: Report | None = None,
    procfile: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Stack]:
    """A running stack, every service SERVING; drained and stopped at the end of the block.

    Args:
        home: its folder; `.nianlun/` or NIANLUN_HOME by default.
        terminal: the processes print to the terminal too, not only to the log file.
        report: called with a line for each step of the start.
        procfile: the processes to run, each in the folder of this file. By default those of
            Nianlun, in the repository or, from an installed wheel, in the folder of the stack.
        environ: the environment of all processes instead of this process's own.

    Raises:
        LocalError: it does not start; the text says why and what to do.
    """
    report = report or (lambda _line: None)
    home = home or default_home()
    stack = Stack(home, terminal, report, procfile or _own_procfile(home), environ)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


def _own_procfile(home: Home) -> Path:
    """The list of processes, in a folder where they may write what they keep."""
    if _ROOT_PROCFILE.exists():
        return _ROOT_PROCFILE
    home.create()
    copy = home.root / "Procfile"
    copy.write_text(_PROCFILE.read_text(encoding="utf-8"), encoding="utf-8")
    return copy


class Stack:
    """A handle on the process that owns a stack."""

    def __init__(
        self,
        home: Home,
        terminal: bool,
        report: Report,
        procfile: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._home = home
        self._environ = environ
        self._procfile = procfile
        self._terminal = terminal
        self._report = report
        self._process: subprocess.Popen[str] | None = None
        self._info: StackInfo | None = None

    @property
    def info(self) -> StackInfo:
        """Where the services answer."""
        assert self._info is not None, "the stack is not started"
        return self._info

    def start(self) -> None:
        """Start it and wait until every service reports SERVING; see ``launch``."""
        owner = "services.local.supervisor"
        command = [sys.executable, "-m", owner, str(self._home.root), str(self._procfile)]
        if self._terminal:
            command.append("--terminal")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=REPOSITORY,
            env=None if self._environ is None else dict(self._environ),
            start_new_session=True,  # Ctrl-C is ours to handle: it must reach the services in order
        )
        self._info = self._await_up(self._process)
        self._report("waiting until every service is ready")
        self._await_serving(self._info)

    def stop(self) -> None:
        """Drain the services, stop PostgreSQL, wait until all have ended."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()  # the kernel passes it on to everything below
            process.wait()
        process.stdout.close()

    def wait(self) -> int:
        """Block until the stack ends by itself; its exit code."""
        assert self._process is not None
        return self._process.wait()

    def terminate(self) -> None:
        """Ask it to stop without waiting."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def _await_up(self, process: subprocess.Popen[str]) -> StackInfo:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "step":
                self._report(event["text"])
            elif event["event"] == "failed":
                raise LocalError(event["text"])
            elif event["event"] == "up":
                return StackInfo(**event["info"])
        raise LocalError(f"the local stack ended at once (exit code {process.wait()})")

    def _await_serving(self, info: StackInfo) -> None:
        deadline = time.monotonic() + _READY_S
        waiting: dict[str, Callable[[], bool]] = {
            name: partial(grpc_serving, target, 1.0) for name, target in info.targets.items()
        }
        waiting["gateway"] = partial(http_ready, f"{info.gateway}/healthz", 1.0)
        while waiting:
            waiting = {name: ready for name, ready in waiting.items() if not ready()}
            assert self._process is not None
            if self._process.poll() is not None:
                raise LocalError(f"a process of the stack ended:\n{self._why()}")
            if waiting and time.monotonic() > deadline:
                raise LocalError(
                    f"not ready after {_READY_S:.0f} s: {', '.join(waiting)}\n{self._why()}"
                )
            time.sleep(0.1)

    def _why(self) -> str:
        """The lines of the log that explain an early end."""
        try:
            lines = self._home.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        told = [line for line in lines if "system" not in line.split("|")[0]]
        return "\n".join(f"  {line}" for line in told[-20:]) + f"\n(all of it: {self._home.log})"
