"""Running an app as a process: logging, signals, drain, readable start-up errors."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Protocol

from services.common import logs
from services.common.errors import StartupError
from services.common.grpc.health import Readiness
from services.common.settings import ChassisSettings

EXIT_STARTUP = 78
"""EX_CONFIG: the process could not start; the message says why."""


class App(Protocol):
    """What a composition root builds: something that starts, has a port, and stops cleanly.

    ``stop`` drains: it reports NOT_SERVING, waits for calls in flight, then closes what it holds.
    Workers have port 0.
    """

    @property
    def port(self) -> int:
        """The port served on, known after ``start``; 0 where none is."""

    @property
    def readiness(self) -> Readiness:
        """What health reports."""

    async def start(self) -> None:
        """Open everything and serve. Raises StartupError with a readable reason."""

    async def stop(self) -> None:
        """Drain and close. Safe after a failed start."""


class HasChassis(Protocol):
    """Settings that carry the chassis part."""

    @property
    def chassis(self) -> ChassisSettings:
        """Logging, telemetry, shutdown."""


def run(app: App, settings: HasChassis, name: str = "nianlun") -> int:
    """Run ``app`` until SIGTERM or SIGINT, then stop it; returns the exit code.

    A second signal ends the process at once.
    """
    logs.configure(settings.chassis, name)
    try:
        return asyncio.run(_run(app, name))
    except StartupError as error:
        return fail(name, error)


def main(name: str, build: Callable[[], tuple[App, HasChassis]]) -> int:
    """``run`` for a ``__main__``: settings that cannot be read end readably too.

    ``build`` reads the settings and composes the app.
    """
    try:
        app, settings = build()
    except StartupError as error:
        return fail(name, error)
    return run(app, settings, name)


def fail(name: str, error: StartupError) -> int:
    """Print why the process cannot start, for people; returns the exit code."""
    sys.stderr.write(f"{name} cannot start.\n{error}\n")
    return EXIT_STARTUP


async def _run(app: App, name: str) -> int:
    log = logs.get(__name__)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    main_task = asyncio.current_task()

    def asked_to_stop() -> None:
        if stopping.is_set() and main_task is not None:
            main_task.cancel()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop)
    try:
        await app.start()
        log.info("started", process=name, port=app.port)
        await stopping.wait()
        log.info("stopping", process=name)
    except asyncio.CancelledError:
        log.warning("stopped_at_once", process=name)
    finally:
        await app.stop()
    log.info("stopped", process=name)
    return 0
