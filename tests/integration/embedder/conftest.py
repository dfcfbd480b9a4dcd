"""The embedder behind a real socket, keys checked by a function: no database needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from pydantic import SecretStr

from nianlun.embedder.v1 import embedder_pb2_grpc
from services.common.auth.verifier import VerifiedKey
from services.embedder.app import EmbedderApp, build
from services.embedder.settings import EmbedderSettings

METADATA = (("authorization", "Bearer nl_" + "a" * 43),)


async def lookup(_digest: bytes) -> VerifiedKey:
    """Every well-formed key is good."""
    return VerifiedKey("tenant", "key", frozenset({"read", "write"}), None)


class Caller:
    """The stub with a key on every call."""

    def __init__(self, channel: grpc.aio.Channel, app: EmbedderApp) -> None:
        self.channel = channel
        self.app = app
        self._stub = embedder_pb2_grpc.EmbedderServiceStub(channel)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._stub, name)
        return lambda request, **options: method(request, metadata=METADATA, **options)


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of graphs for all tests: the graph is built once."""
    return tmp_path_factory.mktemp("models")


async def started(models_dir: Path, **settings: Any) -> tuple[EmbedderApp, Caller]:
    app = build(
        EmbedderSettings(
            listen="127.0.0.1:0",
            database_dsn=SecretStr("unused"),
            models_dir=models_dir,
            **settings,
        ),
        lookup,
    )
    await app.start()
    options = [("grpc.max_receive_message_length", 64 * 1024 * 1024)]
    return app, Caller(grpc.aio.insecure_channel(f"127.0.0.1:{app.port}", options), app)


@pytest_asyncio.fixture(scope="session")
async def embedder(models_dir: Path) -> AsyncIterator[Caller]:
    app, caller = await started(models_dir)
    yield caller
    await caller.channel.close()
    await app.stop()
