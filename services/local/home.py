"""The folder of the local stack (`.nianlun/`): what lies where, who may read it, who owns it."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from services.local.errors import LocalError

TENANT = "local"
GRPC_SERVICES = ("embedder", "retriever", "memory", "orchestrator")


@dataclass(frozen=True)
class StackInfo:
    """Where a running stack answers.

    ``targets`` maps each gRPC service to host:port; ``gateway`` is the base URL over HTTP;
    ``dsn`` is the owner's connection string; ``pid`` is the process that owns the stack.
    """

    targets: dict[str, str]
    gateway: str
    tenant: str
    key: str = field(repr=False)
    dsn: str
    log: str
    pid: int


@dataclass(frozen=True)
class Home:
    """The layout of one `.nianlun/` folder."""

    root: Path

    @property
    def data(self) -> Path:
        """Data directory of PostgreSQL."""
        return self.root / "pg"

    @property
    def key(self) -> Path:
        """The key of tenant `local`, for callers."""
        return self.root / "key"

    @property
    def service_key(self) -> Path:
        """The key of scope `service`, for workers."""
        return self.root / "service_key"

    @property
    def log(self) -> Path:
        """What all processes print, one file per start."""
        return self.root / "stack.log"

    @property
    def info(self) -> Path:
        """Addresses of the running stack; there only while one runs."""
        return self.root / "stack.json"

    def create(self) -> None:
        """Make the folder, closed to listing; PostgreSQL's account may pass through it."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o711)

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the folder for one stack; the kernel releases it however the holder ends.

        Raises:
            LocalError: another stack holds it.
        """
        self.create()
        with (self.root / "lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                pid = lock.read().strip()
                raise LocalError(
                    f"{self.root} is in use by another stack"
                    + (f" (process {pid})" if pid else "")
                    + ". Stop it with Ctrl-C where it runs, or with"
                    " `nianlun stack stop`, or use another folder: NIANLUN_HOME=/path"
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def write_info(self, info: StackInfo) -> None:
        """Publish where the stack answers; readable by its user only, as it holds a key."""
        write_secret(self.info, json.dumps(asdict(info), indent=2))

    def read_info(self) -> StackInfo | None:
        """Where the running stack answers; None without one."""
        try:
            return StackInfo(**json.loads(self.info.read_text()))
        except (OSError, ValueError, TypeError):
            return None


def default_home() -> Home:
    """`.nianlun/` in the working directory, or NIANLUN_HOME."""
    return Home(Path(os.environ.get("NIANLUN_HOME") or ".nianlun").resolve())


def replace_secret(path: Path, text: str) -> None:
    """Write an existing secret anew, in one step; who may read it stays as it is."""
    kept = path.stat()
    write_secret(path, text)
    if os.geteuid() == 0:
        os.chown(path, kept.st_uid, kept.st_gid)
    path.chmod(stat.S_IMODE(kept.st_mode))


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its user may read (mode 600), in one step."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)
