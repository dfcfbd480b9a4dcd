"""The MCP server as people run it: a process on stdio or HTTP, driven by the official client."""

from __future__ import annotations

import asyncio
import os
import sys
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import pytest
import pytest_asyncio

from services.local.environment import free_ports
from tests.support.db import Tenant
from tests.support.processes import ROOT
from tests.support.stack import Stack

pytest.importorskip("mcp")

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

_PATHS = ("", "clients/python", "clients/mcp", "protos/gen")


def environment(stack: Stack, **more: str) -> dict[str, str]:
    """What the process gets: where the services are, and no key but what is said."""
    targets = {
        f"NIANLUN_{name.upper()}_TARGET": stack.target(name)
        for name in ("embedder", "retriever", "memory", "orchestrator")
    }
    path = os.pathsep.join(str(ROOT / part) for part in _PATHS)
    return targets | {"PYTHONPATH": path} | more


def text_of(result: Any) -> str:
    """The text a model reads."""
    return "\n".join(block.text for block in result.content)


@asynccontextmanager
async def over_stdio(
    stack: Stack, key: str, user: str, *options: str, mode: str = "auto", **more: str
) -> AsyncIterator[Client]:
    """The official client on the standard streams of a new process."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "nianlun_mcp", *options],
        env=environment(stack, NIANLUN_API_KEY=key, NIANLUN_MCP_USER=user, **more),
    )
    async with Client(parameters, mode=mode) as client:
        yield client


async def run(stack: Stack, *options: str, **more: str) -> tuple[int, str]:
    """Run the command until it ends by itself: exit code and what it says on standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "nianlun_mcp",
        *options,
        env={"PATH": os.environ["PATH"]} | environment(stack, **more),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, err.decode()


@dataclass(frozen=True)
class Server:
    """A server over HTTP."""

    url: str

    @asynccontextmanager
    async def client(
        self, key: str, user: str = "", *, mode: str = "auto", session: str = ""
    ) -> AsyncIterator[Client]:
        """The official client with these headers."""
        headers = {"authorization": f"Bearer {key}"}
        if user:
            headers["x-nianlun-user"] = (
                user if user.isascii() else f"UTF-8''{urllib.parse.quote(user, safe='')}"
            )
        if session:
            headers["x-nianlun-session"] = session
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,
        ):
            yield client


@asynccontextmanager
async def serving(stack: Stack, *options: str, **more: str) -> AsyncIterator[Server]:
    """A server over HTTP in a process of its own."""
    (port,) = free_ports(1)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "nianlun_mcp",
        "--http",
        f"127.0.0.1:{port}",
        *options,
        env={"PATH": os.environ["PATH"]} | environment(stack, **more),
    )
    try:
        await _up(process, f"http://127.0.0.1:{port}/healthz")
        yield Server(f"http://127.0.0.1:{port}/mcp")
    finally:
        if process.returncode is None:
            process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0, "told to stop, it has not failed"


async def _up(process: asyncio.subprocess.Process, url: str) -> None:
    async with httpx.AsyncClient() as http, asyncio.timeout(60):
        while process.returncode is None:
            try:
                if (await http.get(url)).status_code == 200:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.1)
    raise AssertionError(f"the server ended with {process.returncode}")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def http_server(stack: Stack) -> AsyncIterator[Server]:
    """One server over HTTP; its own environment holds a good key, which it must never lend."""
    lent = stack.database.tenant()
    async with serving(stack, NIANLUN_API_KEY=lent.key, NIANLUN_KEY=lent.key) as server:
        yield server


class Opener(Protocol):
    """Opens the official client over one of the transports."""

    def __call__(self, key: str, user: str) -> Any: ...


@pytest.fixture(params=["stdio", "http", "http-legacy"])
def opened(request: pytest.FixtureRequest, stack: Stack, http_server: Server) -> Opener:
    """`opened(key, user)` is an async context with a client, over each transport in turn."""
    if request.param == "stdio":
        return lambda key, user: over_stdio(stack, key, user)
    mode = "legacy" if request.param == "http-legacy" else "auto"
    return lambda key, user: http_server.client(key, user, mode=mode)


@pytest.fixture
def other_tenant(stack: Stack) -> Tenant:
    """Another tenant of the same database."""
    return stack.database.tenant()
