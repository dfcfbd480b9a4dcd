"""Servers under test as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
import psutil

INFINITY = Path(".venv-infinity/bin/infinity_emb")


@dataclass
class Server:
    """A running server that answers commands on stdin."""

    process: subprocess.Popen[str]
    port: int
    log: IO[str]

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command, return the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def logged(self) -> str:
        """What it wrote to stderr so far."""
        self.log.seek(0)
        return self.log.read()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        # Libraries print to stdout, too: an answer is the line that is JSON.
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"the server ended:\n{self.logged()[-2_000:]}")


@contextmanager
def module(name: str, argument: str) -> Iterator[Server]:
    """`python -m name argument`, stopped at the end."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", name, argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
        server = Server(process, 0, log)
        try:
            server.port = server._answer()["port"]
            yield server
        finally:
            _stop(process)


@contextmanager
def embedder(**settings: Any) -> Iterator[Server]:
    """The embedder with these settings."""
    with module("benchmarks.embed.server", json.dumps(settings)) as server:
        yield server


@contextmanager
def infinity(folder: str, port: int = 17_997) -> Iterator[str]:
    """infinity-emb serving the model in `folder`; yields its base URL. OSError if it cannot run."""
    if not INFINITY.exists():
        raise FileNotFoundError(f"{INFINITY} is not installed")
    command: Sequence[str] = [
        str(INFINITY),
        "v2",
        "--model-id",
        folder,
        "--port",
        str(port),
        "--engine",
        "torch",
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--no-bettertransformer",
        "--log-level",
        "error",
    ]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "INFINITY_ANONYMOUS_USAGE_STATS": "0",
    }
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True, env=environment)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(process, url, log)
            yield url
        finally:
            _stop(process)


def _wait(process: subprocess.Popen[str], url: str, log: IO[str], seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=1.0).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    log.seek(0)
    raise OSError(f"infinity-emb does not start:\n{log.read()[-1_500:]}")


def _stop(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    children = psutil.Process(process.pid).children() if process.poll() is None else []
    try:
        process.wait(2 if process.stdin is None else 10)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    for child in children:
        if child.is_running():
            child.kill()
