"""Children that end with their parent, however it ends.

On Linux the kernel signals a child when the thread that started it is gone (``PR_SET_PDEATHSIG``).
Elsewhere only an orderly end reaches the children, and the next start removes what was left.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

_PR_SET_PDEATHSIG = 1


def die_with_parent(signum: signal.Signals) -> None:
    """Ask the kernel to send ``signum`` to this process when its parent ends; Linux only."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)


def leashed(signum: signal.Signals) -> Callable[[], None]:
    """A ``preexec_fn`` for subprocess: the child gets ``signum`` when this process ends.

    Must be called in the thread that starts the child, and only where no other thread holds locks.
    """
    parent = os.getpid()

    def prepare() -> None:
        die_with_parent(signum)
        if os.getppid() != parent:  # it ended between the fork and the line above
            os.kill(os.getpid(), signum)

    return prepare


def leash(
    argv: Sequence[str], signum: signal.Signals, account: tuple[int, int] | None = None
) -> tuple[list[str], dict[str, Any]]:
    """`argv` and options of ``subprocess.Popen`` for a child that gets ``signum`` when this process
    ends, and runs as ``account`` (user id, group id) where one is given.

    By `setpriv` (util-linux) where there is one: a child that is forked, as it is for these options
    of Popen, can crash before it starts while other threads, gRPC's for one, are at work.
    """
    setpriv = shutil.which("setpriv") if sys.platform.startswith("linux") else None
    if setpriv is None:
        options: dict[str, Any] = {"preexec_fn": leashed(signum)}
        if account is not None:
            options |= {"user": account[0], "group": account[1], "extra_groups": []}
        return list(argv), options
    words = [setpriv, "--pdeathsig", signum.name.removeprefix("SIG")]
    if account is not None:
        words += ["--reuid", str(account[0]), "--regid", str(account[1]), "--clear-groups"]
    return [*words, "--", *argv], {}
