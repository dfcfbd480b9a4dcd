"""A memory service with a language model, over a database of its own: its worker must not share a
queue with the worker of the stack that has none."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.integration.memory.calls import Memory
from tests.support.db import Databases, Tenant
from tests.support.fake_llm import FakeLlm
from tests.support.stack import Stack


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _smart(databases: Databases, _llm_server: FakeLlm) -> AsyncIterator[Stack]:
    running = Stack(databases.new(), llm=_llm_server, services=("embedder", "memory"))
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def smart(_smart: Stack, fake_llm: FakeLlm) -> Memory:
    """A new tenant of the memory service that extracts with `fake_llm`."""
    return Memory(_smart.client().memory)


@pytest_asyncio.fixture(loop_scope="session")
async def memory(stack: Stack, tenant: Tenant) -> Memory:
    """A new tenant of the memory service that extracts by rules."""
    return Memory(stack.client(tenant).memory)
