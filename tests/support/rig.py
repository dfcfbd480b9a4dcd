"""What a client in another language is tested against: services that fail when they are told to.

The client's program learns from its environment where everything is (`Rig.environment`) and asks
for a failure with a POST to NIANLUN_TEST_CONTROL; what can be asked for is said in `rig`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trustme

from tests.support import fake_llm as llm
from tests.support.db import Database, Tenant
from tests.support.fake_llm import FakeLlm
from tests.support.proxy import cutting_proxy
from tests.support.stack import Stack

Action = Callable[[], Awaitable[None]]
_STORY: Final = "很久很久以前，" * 200


@dataclass(frozen=True)
class Rig:
    """A running rig: the variables of the client's program, and whose key they hold."""

    tenant: Tenant
    environment: dict[str, str]


class OneService:
    """The memory service alone, on a port that it keeps when it is stopped and started again."""

    def __init__(self, database: Database, stack: Stack, chassis: dict[str, Any]) -> None:
        self._database = database
        self._targets = {"embedder": stack.target("embedder")}
        self._chassis = chassis
        self._stack: Stack | None = None
        self._listen = "127.0.0.1:0"

    @property
    def target(self) -> str:
        """host:port, also while it is down."""
        return self._listen

    async def start(self) -> None:
        """Start it; nothing where it runs."""
        if self._stack is not None:
            return
        self._stack = Stack(
            self._database,
            services=("memory",),
            workers=False,
            targets=self._targets,
            chassis=self._chassis,
            overrides={"memory": {"listen": self._listen}},
        )
        await self._stack.start()
        self._listen = self._stack.target("memory")

    async def stop(self) -> None:
        """Stop it; nothing where it does not run."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.stop()


@asynccontextmanager
async def rig(
    stack: Stack, thinking: Stack, fake_llm: FakeLlm, database: Database, folder: Path
) -> AsyncIterator[Rig]:
    """The services of `stack` and the orchestrator of `thinking`, whose model knows a name and a
    long story, and beside them

    - NIANLUN_TEST_RESTARTED: a memory service; `/stop` and `/start` are asked for,
    - NIANLUN_TEST_PROXIED: memory behind a proxy; `/cut` loses the next answer together with its
      connection, `/hold` keeps answers back until `/release`,
    - NIANLUN_TEST_TLS: a memory service over TLS as "localhost", with the authority's certificate
      in the file NIANLUN_TEST_CA.
    """
    for question in ("What do you know about me?", "我叫什么"):
        fake_llm.on(question, llm.text("你叫陈川，主要写代码。"))
    fake_llm.on("讲一个长故事", llm.text(_STORY, piece_delay_s=0.05))
    tenant = database.tenant()
    async with AsyncExitStack() as running:
        restarted = await _started(running, OneService(database, stack, {}))
        secure = await _started(running, OneService(database, stack, _certificates(folder)))
        proxy = await running.enter_async_context(cutting_proxy(stack.apps["memory"].port))
        proxy.once = True

        async def cut() -> None:
            proxy.cutting = True

        async def hold() -> None:
            proxy.hold()

        async def release() -> None:
            proxy.release()

        actions = {
            "start": restarted.start,
            "stop": restarted.stop,
            "cut": cut,
            "hold": hold,
            "release": release,
        }
        port = await running.enter_async_context(_control(actions))
        yield Rig(
            tenant,
            {
                "NIANLUN_KEY": tenant.key,
                "NIANLUN_EMBEDDER_TARGET": stack.target("embedder"),
                "NIANLUN_RETRIEVER_TARGET": stack.target("retriever"),
                "NIANLUN_MEMORY_TARGET": stack.target("memory"),
                "NIANLUN_ORCHESTRATOR_TARGET": thinking.target("orchestrator"),
                "NIANLUN_TEST_CONTROL": f"http://127.0.0.1:{port}",
                "NIANLUN_TEST_RESTARTED": restarted.target,
                "NIANLUN_TEST_PROXIED": f"127.0.0.1:{proxy.port}",
                "NIANLUN_TEST_TLS": secure.target.replace("127.0.0.1", "localhost"),
                "NIANLUN_TEST_CA": str(folder / "ca.pem"),
            },
        )


@dataclass
class Program:
    """A program of the client that has ended: its exit code and all it printed."""

    code: int
    output: str = field(repr=False)

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


async def run_program(
    *command: str,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    within_s: float = 120,
) -> Program:
    """Run a program that sees PATH, HOME, the given variables and nothing else."""
    process = await _process(command, cwd, environment or {})
    try:
        output, _ = await asyncio.wait_for(process.communicate(), within_s)
    except TimeoutError:
        process.kill()
        raise
    return Program(process.returncode or 0, output.decode())


@asynccontextmanager
async def server_program(*command: str, cwd: Path | None = None, rig: Rig) -> AsyncIterator[str]:
    """Run a program that serves HTTP until the block ends; yields the address that it prints."""
    process = await _process(command, cwd, rig.environment)
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        found = re.search(r"http://\S+", line.decode())
        assert found is not None, (line + await process.stdout.read()).decode()
        yield found.group()
        process.terminate()
        await asyncio.wait_for(process.wait(), 20)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _process(
    command: Sequence[str], cwd: Path | None, environment: Mapping[str, str]
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        # The platform's character set is what a bare server has: Chinese must survive it.
        env={
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "LC_ALL": "POSIX",
            **environment,
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def _started(running: AsyncExitStack, service: OneService) -> OneService:
    running.push_async_callback(service.stop)
    await service.start()
    return service


def _certificates(folder: Path) -> dict[str, Any]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    pair = authority.issue_cert("localhost")
    pair.private_key_pem.write_to_path(str(folder / "server.key"))
    for index, part in enumerate(pair.cert_chain_pems):
        part.write_to_path(str(folder / "server.pem"), append=index > 0)
    return {"tls_cert_file": folder / "server.pem", "tls_key_file": folder / "server.key"}


@asynccontextmanager
async def _control(actions: Mapping[str, Action]) -> AsyncIterator[int]:
    """`POST /name` runs the action of that name, then answers 204; yields the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            name = head.split(b" ", 2)[1].decode().strip("/")
            status = "404 Not Found"
            if name in actions:
                await actions[name]()
                status = "204 No Content"
            writer.write(f"HTTP/1.1 {status}\r\nconnection: close\r\n\r\n".encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the program ended
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
