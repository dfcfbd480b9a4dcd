"""A gateway before an orchestrator with a scripted model, and an embedder; nothing else runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import openai
import pytest

from tests.support.db import Databases
from tests.support.fake_llm import FakeLlm
from tests.support.gateway import serving
from tests.support.stack import Stack


@dataclass(frozen=True)
class Gateway:
    """A running gateway and a tenant's key."""

    url: str
    key: str
    stack: Stack

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}


@pytest.fixture(scope="module")
async def gate(databases: Databases, _llm_server: FakeLlm) -> AsyncIterator[Gateway]:
    stack = Stack(
        databases.new(),
        llm=_llm_server,
        workers=False,
        services=("embedder", "orchestrator"),
        overrides={
            "orchestrator": {
                "memory_target": "127.0.0.1:9",
                "retriever_target": "127.0.0.1:9",
                "memory_timeout_s": 0.5,
                "save_timeout_s": 0.5,
            }
        },
    )
    await stack.start()
    tenant = stack.database.tenant()
    try:
        async with serving(stack, max_body_bytes=200_000) as url:
            yield Gateway(url, tenant.key, stack)
    finally:
        await stack.stop()


@pytest.fixture
async def client(gate: Gateway, fake_llm: FakeLlm) -> AsyncIterator[openai.AsyncOpenAI]:
    """The official client."""
    async with openai.AsyncOpenAI(
        base_url=f"{gate.url}/v1", api_key=gate.key, max_retries=0
    ) as made:
        yield made
