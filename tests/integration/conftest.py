"""Fixtures for tests over the whole stack."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.canary import plant
from tests.support.db import Database, Tenant
from tests.support.fake_llm import FakeLlm
from tests.support.requests import Ids
from tests.support.stack import Client, Stack


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def planted(stack: Stack) -> tuple[Client, Ids]:
    """Data of one tenant in every service; tests may read it, never change it."""
    client = stack.client()
    return client, await plant(client)


@pytest_asyncio.fixture(loop_scope="session")
async def client(stack: Stack, tenant: Tenant) -> Client:
    """A new tenant's view of the services."""
    return stack.client(tenant)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _thinking(stack: Stack, database: Database, _llm_server: FakeLlm) -> AsyncIterator[Stack]:
    others = ("embedder", "retriever", "memory")
    thinking = Stack(
        database,
        llm=_llm_server,
        services=("orchestrator",),
        workers=False,
        targets={service: stack.target(service) for service in others},
    )
    await thinking.start()
    try:
        yield thinking
    finally:
        await thinking.stop()


@pytest.fixture
def thinking_stack(_thinking: Stack, fake_llm: FakeLlm) -> Stack:
    """The same services with an orchestrator that has a language model, `fake_llm`."""
    return _thinking
