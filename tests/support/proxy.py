"""A TCP proxy that loses answers: requests get through, what comes back does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CuttingProxy:
    """Forwards to a port on this machine. While `cutting`, the first answer bytes end the
    connection instead of reaching the client; the server has done its work by then. With `once`
    that happens to one answer. `hold` keeps answers back until `release`: the line is dead."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.cutting = False
        self.once = False
        self.cuts = 0
        self._flowing = asyncio.Event()
        self._flowing.set()

    def hold(self) -> None:
        """Let no answer through from now on."""
        self._flowing.clear()

    def release(self) -> None:
        """Let answers through again, those that were kept back first."""
        self._flowing.set()

    async def start(self) -> None:
        """Listen on a free loopback port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything."""
        assert self._server is not None
        self._server.close()
        self.drop()

    def drop(self) -> None:
        """Cut every connection now."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(
        self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter
    ) -> None:
        server_in, server_out = await asyncio.open_connection("127.0.0.1", self._target)
        pair = (client_out, server_out)
        self._writers.update(pair)
        try:
            await asyncio.gather(
                self._pump(client_in, server_out, answers=False),
                self._pump(server_in, client_out, answers=True),
            )
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.difference_update(pair)
            for writer in pair:
                writer.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while data := await source.read(65536):
            # Small frames are acknowledgements of HTTP/2 itself (settings, window, ping).
            if answers and self.cutting and len(data) > 60:
                self.cuts += 1
                self.cutting = not self.once
                raise ConnectionResetError
            if answers:
                await self._flowing.wait()
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError


@asynccontextmanager
async def cutting_proxy(port: int) -> AsyncIterator[CuttingProxy]:
    """A running proxy in front of a port."""
    proxy = CuttingProxy(port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
