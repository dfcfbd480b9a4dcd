"""Services as real processes, for tests that send signals."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PORT = re.compile(rb'"port": ?(\d+)|\bport=(\d+)')


class ServiceProcess:
    """`python -m <module>` with an environment; its log lines are kept."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[bytes] = []
        self.port = 0
        self._ready = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def ready(self, within_s: float = 60.0) -> None:
        """Wait for the line that says "started"; AssertionError with the output else."""
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(self._ready.wait()), self._reader],
            timeout=within_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert done, self.output
        assert self._ready.is_set(), self.output

    @property
    def output(self) -> str:
        return b"".join(self.lines).decode(errors="replace")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def wait(self, within_s: float = 30.0) -> int:
        """The exit code."""
        return await asyncio.wait_for(self.process.wait(), within_s)

    async def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reader

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line)
            found = _PORT.search(line)
            if found and b"started" in line:
                self.port = int(found.group(1) or found.group(2))
                self._ready.set()


@asynccontextmanager
async def service_process(
    module: str, environment: dict[str, str]
) -> AsyncIterator[ServiceProcess]:
    """Start, yield, and make sure that it is gone afterwards."""
    path = os.pathsep.join(str(ROOT / part) for part in ("", "clients/python", "protos/gen"))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=1024 * 1024,
    )
    service = ServiceProcess(process)
    try:
        yield service
    finally:
        await service.close()
