"""The process that owns a local stack: PostgreSQL, migrations, keys, and the Procfile.

It is started by ``stack.launch`` and speaks JSON lines on its standard output, one event a line:
``{"event": "step", "text": ...}``, ``{"event": "up", "info": {...}}``, ``{"event": "failed",
"text": ...}``. It ends when its standard input closes, on SIGTERM, or when a process of the stack
ends; always in order: services drain first, PostgreSQL stops last. It never loads gRPC: it forks.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TextIO

from services.local import environment, provision
from services.local.errors import LocalError
from services.local.home import GRPC_SERVICES, TENANT, Home, StackInfo
from services.local.leash import die_with_parent
from services.local.postgres import EmbeddedPostgres
from services.local.processes import ProcessGroup, Tee, read_procfile


def emit(event: str, **values: object) -> None:
    """Tell the launcher; a launcher that is gone is noticed by the watch on standard input."""
    try:
        sys.stdout.write(json.dumps({"event": event, **values}, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        return


def run(home: Home, procfile: Path, terminal: bool) -> int:
    """Own a stack until told to stop; the exit code of the process."""
    _end_when_told()
    with ExitStack() as cleanup:
        try:
            cleanup.enter_context(home.owned())
            emit("step", text="starting PostgreSQL")
            postgres = EmbeddedPostgres(home.data)
            cleanup.callback(postgres.stop)
            postgres.start()
            emit("step", text="migrating the schema")
            provision.migrate(postgres.dsn())
            emit("step", text="checking tenant and keys")
            keys = provision.ensure_keys(home, postgres.dsn())
            commands = read_procfile(procfile)
        except LocalError as error:
            emit("failed", text=str(error))
            return 1
        addresses = environment.choose_addresses()
        info = StackInfo(
            targets={name: addresses[name] for name in GRPC_SERVICES},
            gateway=f"http://{addresses['gateway']}",
            tenant=TENANT,
            key=keys.caller,
            dsn=postgres.dsn(),
            log=str(home.log),
            pid=os.getpid(),
        )
        variables = environment.build(
            os.environ,
            addresses,
            role_dsn=lambda role: postgres.dsn(user=f"nianlun_{role}"),
            service_key=keys.service,
            log_format="console" if terminal and sys.stderr.isatty() else "json",
        )
        home.write_info(info)
        cleanup.callback(home.info.unlink, missing_ok=True)
        log = cleanup.enter_context(home.log.open("w", encoding="utf-8"))
        outputs: tuple[TextIO, ...] = (log, sys.stderr) if terminal else (log,)
        group = ProcessGroup(commands, variables, procfile.parent, Tee(outputs))
        emit("step", text=f"starting {len(commands)} processes")
        emit("up", info=asdict(info))
        return group.run()


def _end_when_told() -> None:
    """End on SIGTERM, and with the launcher: by the kernel where it can, else by its pipe."""

    def stop(_signum: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    die_with_parent(signal.SIGTERM)
    threading.Thread(target=_watch_launcher, name="launcher-watch", daemon=True).start()


def _watch_launcher() -> None:
    # os.read takes no Python lock, which a fork in the main thread would copy in locked state.
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """`python -m services.local.supervisor HOME PROCFILE [--terminal]`, started by `launch`."""
    home, procfile, *options = sys.argv[1:]
    sys.exit(run(Home(Path(home)), Path(procfile), "--terminal" in options))


if __name__ == "__main__":
    main()
