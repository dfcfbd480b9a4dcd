"""The processes of the Procfile, run by honcho, none of which outlives its parent."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import psutil
from honcho.environ import parse_procfile
from honcho.manager import Manager
from honcho.printer import Printer
from honcho.process import Popen, Process

from services.local.errors import LocalError
from services.local.leash import die_with_parent, leashed

_DRAIN_S = 20.0


def read_procfile(path: Path) -> dict[str, str]:
    """Process names and commands, in order; `python` is the interpreter that runs this.

    Raises:
        LocalError: there is no such file, or it names no process.
    """
    try:
        commands: dict[str, str] = dict(parse_procfile(path.read_text()).processes)
    except OSError as error:
        raise LocalError(
            f"cannot read {path}: {error.strerror}. Run from the repository."
        ) from None
    if not commands:
        raise LocalError(f"{path} names no process")
    return {name: _with_this_python(command) for name, command in commands.items()}


def _with_this_python(command: str) -> str:
    # `exec`: no shell stays between us and the process, so that signals arrive.
    words = command.split(" ", 1)
    if words[0] == "python":
        words[0] = f"'{sys.executable}'"
    return "exec " + " ".join(words)


class _LeashedPopen(Popen):  # type: ignore[misc]
    """A process of the Procfile: told to drain when the monitor above it is gone."""

    def __init__(self, command: str, **options: Any) -> None:
        super().__init__(command, preexec_fn=leashed(signal.SIGTERM), **options)


class _LeashedProcess(Process):  # type: ignore[misc]
    """honcho's monitor of one process, itself killed when the manager is gone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._child_ctor = _LeashedPopen

    def run(self, events: Any = None, ignore_signals: bool = False) -> None:
        die_with_parent(signal.SIGKILL)
        super().run(events, ignore_signals)


class _PatientManager(Manager):  # type: ignore[misc]
    """honcho's manager, which fails when it is told to stop before every process has its pid."""

    def __init__(self, printer: Printer) -> None:
        super().__init__(printer)
        self._process_ctor = _LeashedProcess
        self._stop_when_started = False

    def terminate(self) -> None:
        if super()._all_started():
            super().terminate()
        else:
            self._stop_when_started = True

    def _all_started(self) -> bool:  # asked in every turn of the loop
        started = bool(super()._all_started())
        if started and self._stop_when_started:
            self._stop_when_started = False
            super().terminate()
        return started


@dataclass(frozen=True)
class Tee:
    """Text output to several files at once, for honcho's printer.

    honcho prints in its signal handler too, possibly in the middle of another line's print, which
    Python's buffered files refuse. So this writes to the descriptors, without a buffer.
    """

    outputs: tuple[TextIO, ...]

    def write(self, text: str) -> int:
        """Write to each."""
        for output in self.outputs:
            rest = text.encode("utf-8", "replace")
            while rest:
                rest = rest[os.write(output.fileno(), rest) :]
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        """Colours only where every reader is a terminal."""
        return all(output.isatty() for output in self.outputs)


class ProcessGroup:
    """Runs all commands until one ends or a signal comes; then all are told to drain."""

    def __init__(
        self, commands: Mapping[str, str], environment: Mapping[str, str], cwd: Path, output: Tee
    ) -> None:
        self._manager = _PatientManager(Printer(output))
        for name, command in commands.items():
            self._manager.add_process(name, command, env=dict(environment), cwd=str(cwd))

    def run(self) -> int:
        """Block until every process has ended: 0 if asked to, else the code of the first that ended
        (1 where that was 0: none is meant to end by itself).

        Installs its own handlers for SIGINT and SIGTERM; call it in the main thread.
        """
        try:
            self._manager.loop()
        finally:
            self._end_all()
        code = self._manager.returncode
        return 0 if code in (None, 130, 143, -signal.SIGTERM, -signal.SIGINT) else int(code) or 1

    def _end_all(self) -> None:
        """After an exception in the loop: end the monitors, then wait for their processes."""
        left = []
        for entry in self._manager._processes.values():
            monitor = entry.get("process")
            if monitor is None or not monitor.is_alive():
                continue
            if psutil.pid_exists(entry.get("pid") or 0):
                left.append(psutil.Process(entry["pid"]))
            monitor.kill()
        _gone, alive = psutil.wait_procs(left, timeout=_DRAIN_S)
        for process in alive:
            process.kill()
