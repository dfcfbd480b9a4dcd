"""`python -m services.local serve|stop`: the local stack on a terminal."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import psutil
from rich.console import Console

from services.local.errors import LocalError
from services.local.home import Home, StackInfo, default_home
from services.local.stack import launch

_STOP_S = 45.0


def serve(console: Console) -> int:
    """Start the stack, print how to call it, stay until Ctrl-C; the exit code."""
    stop_asked = False

    def ask(_signum: int, _frame: FrameType | None) -> None:
        nonlocal stop_asked
        if stop_asked:  # the second time: no more patience
            raise KeyboardInterrupt
        stop_asked = True
        stack.terminate()

    home = default_home()
    try:
        with launch(home, terminal=True, report=console.print) as stack:
            signal.signal(signal.SIGINT, ask)
            signal.signal(signal.SIGTERM, ask)
            _banner(stack.info, home, console)
            code = stack.wait()
    except LocalError as error:
        console.print(f"[red]nianlun cannot start:[/red] {error}", highlight=False)
        return 1
    except KeyboardInterrupt:
        return 130
    if not stop_asked and code != 0:  # 0: another terminal asked, by `nianlun stack stop`
        console.print(f"[red]a process of the stack ended[/red]; its log: {home.log}")
        return code
    console.print("stopped")
    return 0


def stop(home: Home, console: Console) -> int:
    """Ask the stack that owns this folder to end, and wait for it."""
    info = home.read_info()
    if info is None or not psutil.pid_exists(info.pid):
        console.print("no stack is running here")
        return 0
    try:
        os.kill(info.pid, signal.SIGTERM)
    except ProcessLookupError:
        return 0
    deadline = time.monotonic() + _STOP_S
    while psutil.pid_exists(info.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    gone = not psutil.pid_exists(info.pid)
    console.print("stopped" if gone else f"process {info.pid} has not ended yet")
    return 0 if gone else 1


def _banner(info: StackInfo, home: Home, console: Console) -> None:
    """Addresses, and how to call them; nothing that is to be copied is wrapped or cut."""
    key = _relative(home.key)
    lines = [f"{name:<13}{target}" for name, target in info.targets.items()]
    lines += [
        f"{'gateway':<13}{info.gateway}",
        f"{'key':<13}{key} (tenant {info.tenant})",
        f"{'log':<13}{_relative(home.log)}",
    ]
    console.rule("Nianlun is up; Ctrl-C drains and stops")
    console.print("\n".join(lines), soft_wrap=True, markup=False)
    console.print("\nOver HTTP, as OpenAI clients do; the console is at the same address:")
    console.print(
        f'  curl {info.gateway}/v1/chat/completions -H "Authorization: Bearer $(cat {key})" \\\n'
        "    -H 'Content-Type: application/json' \\\n"
        """    -d '{"model": "nianlun", "user": "u_001","""
        """ "messages": [{"role": "user", "content": "你好"}]}'""",
        soft_wrap=True,
        markup=False,
    )
    console.print("\nFrom Python, in this folder (.venv/bin/python):")
    console.print(
        "  from nianlun import Client\n"
        "  with Client.local() as client:\n"
        "      client.append_turn('u_001', 's_1', '我叫林夏')\n"
        "      print(client.load_memory('u_001', '我是谁？').rendered)",
        soft_wrap=True,
        markup=False,
    )
    console.rule()


def _relative(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def main() -> None:
    """Run one command."""
    console = Console(highlight=False)
    command = sys.argv[1:] or ["serve"]
    if command == ["serve"]:
        sys.exit(serve(console))
    if command == ["stop"]:
        sys.exit(stop(default_home(), console))
    console.print("usage: python -m services.local serve|stop")
    sys.exit(2)


if __name__ == "__main__":
    main()
