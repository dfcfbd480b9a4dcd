"""Start a stack, hand out clients and tenants of it, end it."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nianlun.aio import AsyncClient
from nianlun.client import Client
from nianlun.connection import Connection

HOME_VARIABLE = "NIANLUN_TESTING_HOME"
"""A folder in which a stack runs already: it is used, and left running."""


class NotInstalledError(ImportError):
    """The services are not installed here, only the client."""


@dataclass(frozen=True)
class RunningStack:
    """A running stack. ``gateway`` is its address over HTTP; ``key`` is good for all scopes."""

    targets: Mapping[str, str]
    gateway: str
    key: str = field(repr=False)
    dsn: str = field(repr=False)
    log: Path

    @property
    def connection(self) -> Connection:
        """How to reach it as its own tenant, `local`."""
        return Connection(targets=self.targets, key=self.key)

    def client(self) -> Client:
        """A blocking client of tenant `local`; close it."""
        return Client.of(self.connection)

    def async_client(self) -> AsyncClient:
        """An asyncio client of tenant `local`, for the running loop; close it."""
        return AsyncClient.of(self.connection)

    def new_tenant(
        self, tenant_id: str = "", *, scopes: tuple[str, ...] = ("read", "write", "admin")
    ) -> Connection:
        """A tenant that nobody else has, with a key: what it stores no other test sees."""
        from services.common.auth import admin

        name = tenant_id or f"test-{uuid.uuid4().hex[:12]}"
        admin.create_tenant(self.dsn, name, "tests")
        key = admin.create_key(self.dsn, name, scopes, name="tests").key
        return Connection(targets=self.targets, key=key)


@contextmanager
def running(
    *,
    home: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    report: Callable[[str], None] | None = None,
) -> Iterator[RunningStack]:
    """A whole stack, every service ready; ended and removed with the block.

    Args:
        home: its folder, kept afterwards; a temporary one by default.
        env: settings of the services, for instance ``{"LLM_BASE_URL": ...}``. What the environment
            says with LLM_* and NIANLUN_* is not passed on, so that tests are the same everywhere.
        report: called with a line for each step of the start.

    Raises:
        NotInstalledError: the services are not installed.
        services.local.errors.LocalError: it does not start; the text says why.
    """
    used = os.environ.get(HOME_VARIABLE)
    if used and home is None and env is None:
        yield _described(_running_in(Path(used)))
        return
    folder = Path(home).resolve() if home is not None else Path(_short_temporary())
    keeper = _Keeper(_launched(folder, _environment(env or {}), report))
    try:
        yield keeper.started()
    finally:
        keeper.end()
        if home is None:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def stack(
    *,
    home: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    report: Callable[[str], None] | None = None,
) -> Iterator[Client]:
    """A blocking client of a whole stack of its own; see ``running``."""
    with running(home=home, env=env, report=report) as started, started.client() as client:
        yield client


@asynccontextmanager
async def async_stack(
    *,
    home: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    report: Callable[[str], None] | None = None,
) -> AsyncIterator[AsyncClient]:
    """An asyncio client of a whole stack of its own; the loop goes on while it starts."""
    whole = running(home=home, env=env, report=report)
    started = await asyncio.to_thread(whole.__enter__)
    try:
        async with started.async_client() as client:
            yield client
    finally:
        await asyncio.to_thread(whole.__exit__, None, None, None)


def _launched(
    folder: Path, environ: Mapping[str, str], report: Callable[[str], None] | None
) -> Callable[[], AbstractContextManager[RunningStack]]:
    try:
        from services.local.home import Home
        from services.local.stack import launch
    except ModuleNotFoundError as error:
        raise NotInstalledError(
            "nianlun.testing starts real services: install the distribution `nianlun`"
            f" (missing here: {error.name})"
        ) from error

    @contextmanager
    def launched() -> Iterator[RunningStack]:
        with launch(Home(folder), environ=environ, report=report) as made:
            yield _described(vars(made.info))

    return launched


def _described(info: Mapping[str, object]) -> RunningStack:
    targets = info["targets"]
    assert isinstance(targets, dict)
    return RunningStack(
        targets=targets,
        gateway=str(info["gateway"]),
        key=str(info["key"]),
        dsn=str(info["dsn"]),
        log=Path(str(info["log"])),
    )


def _running_in(folder: Path) -> Mapping[str, object]:
    from services.local.home import Home

    info = Home(folder).read_info()
    if info is None:
        raise FileNotFoundError(f"{HOME_VARIABLE}={folder}: no stack is running there")
    return vars(info)


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LLM_", "NIANLUN_"))
    }
    return kept | dict(env)


def _short_temporary() -> str:
    # PostgreSQL's socket lies in it, and the path of a socket may have about 100 characters.
    base = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="nianlun-", dir=base if len(base) < 40 else "/tmp")


class _Keeper:
    """Holds a stack from one thread, whose life is the stack's.

    The kernel ends a stack when the thread that started it ends, and threads of pools come and go.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[RunningStack]]) -> None:
        self._make = make
        self._started: Future[RunningStack] = Future()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hold, name="nianlun-stack", daemon=True)
        self._thread.start()

    def started(self) -> RunningStack:
        """Wait until it is ready; what kept it from starting is raised here."""
        return self._started.result()

    def end(self) -> None:
        """End it and wait until it is gone."""
        self._over.set()
        self._thread.join()

    def _hold(self) -> None:
        try:
            with self._make() as made:
                self._started.set_result(made)
                self._over.wait()
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
