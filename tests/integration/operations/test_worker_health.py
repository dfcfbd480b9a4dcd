"""A worker serves no RPC: its readiness is asked over HTTP, as containers and clusters do."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import Any

import pytest
from pydantic import SecretStr

from services.cli.health import http_ready
from services.common.settings import ChassisSettings
from services.local.environment import free_ports
from services.memory import app as memory
from services.memory.settings import MemorySettings
from services.retriever import app as retriever
from services.retriever.settings import RetrieverSettings
from tests.support import keys
from tests.support.db import Database

WORKERS: dict[str, tuple[Any, Any]] = {
    "memory": (memory.build_worker, MemorySettings),
    "retriever": (retriever.build_worker, RetrieverSettings),
}


@pytest.mark.parametrize("service", WORKERS)
async def test_a_worker_is_ready_while_it_works(database: Database, service: str) -> None:
    build, settings = WORKERS[service]
    [port] = free_ports(1)
    key = keys.create(database.owner_dsn, "nianlun:service", scopes=("service",))
    worker = build(
        settings(
            database_dsn=SecretStr(database.role_dsn(service)),
            embedder_target="127.0.0.1:9",
            chassis=ChassisSettings(
                metrics_port=port, readiness_interval_s=0.1, service_key=SecretStr(key)
            ),
        )
    )
    url = f"http://127.0.0.1:{port}/healthz"
    assert not await asyncio.to_thread(http_ready, url)
    await worker.start()
    try:
        assert await asyncio.to_thread(http_ready, url)
        assert f'db_client_connection_max{{db_client_connection_pool_name="{service}-worker"}}' in (
            await asyncio.to_thread(_text, f"http://127.0.0.1:{port}/metrics")
        )
        _task_of(worker).cancel()
        async with asyncio.timeout(10):
            while await asyncio.to_thread(http_ready, url):  # noqa: ASYNC110 - asked over HTTP
                await asyncio.sleep(0.1)
        assert "worker: the worker has ended" in await asyncio.to_thread(_text, url)
    finally:
        await worker.stop()
    assert not await asyncio.to_thread(http_ready, url)


def _task_of(worker: Any) -> asyncio.Task[None]:
    """The task that works on the queue, which nothing ends from outside in real life."""
    loop = worker if hasattr(worker, "_task") else worker._work
    task: asyncio.Task[None] = loop._task
    return task


def _text(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
