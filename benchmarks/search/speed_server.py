"""What the speed bench runs against: PostgreSQL with memory of its own, the retriever as a process
beside it, and an embedder that answers at once."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import SecretStr

from benchmarks.search import speed_data
from nianlun.embedder.v1 import embedder_pb2 as e
from nianlun.embedder.v1 import embedder_pb2_grpc
from services.common.db import Database
from services.common.grpc.client import service_call
from services.common.settings import DatabaseSettings
from services.local.leash import leash
from services.retriever.promotion import Promoter
from tests.support import db as testdb
from tests.support import keys
from tests.support.stack import Client, Stack

INDEX_MEMORY_MB = 2_048
_START_S = 60.0


def postgres_settings() -> dict[str, str]:
    """As on a server of its own: a sixth of the memory for PostgreSQL's cache, 4 GB at most."""
    megabytes = psutil.virtual_memory().total // 2**20
    return {
        "shared_buffers": f"{min(4_096, megabytes // 6)}MB",
        "max_wal_size": "16GB",
        "checkpoint_timeout": "30min",
    }


class InstantEmbedder(embedder_pb2_grpc.EmbedderServiceServicer):
    """Answers the vector that belongs to a question; documents get vectors made beforehand, so that
    nothing but sending and storing them is measured."""

    def __init__(self) -> None:
        self.vectors: dict[str, list[float]] = {}
        self.port = 0
        rows = np.random.default_rng(3).standard_normal((512, speed_data.DIMENSIONS))
        self._any = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).tolist()

    def _vector(self, text: str, kind: int) -> list[float]:
        if kind == e.INPUT_TYPE_QUERY:
            return self.vectors[text]
        return list(self._any[zlib.crc32(text.encode()) % len(self._any)])

    async def Embed(self, request: e.EmbedRequest, context: Any) -> e.EmbedResponse:
        vectors = [self._vector(t, request.input_type) for t in request.texts]
        items = [e.EmbedItem(dense=e.DenseVector(values=v)) for v in vectors]
        return e.EmbedResponse(
            items=items, model=request.model, revision="1", dimensions=speed_data.DIMENSIONS
        )

    async def ListModels(self, request: e.ListModelsRequest, context: Any) -> Any:
        model = e.Model(
            id=speed_data.MODEL,
            revision="1",
            kinds=[e.VECTOR_KIND_DENSE],
            dimensions=speed_data.DIMENSIONS,
            max_texts=64,
            default_embedder=True,
            ready=True,
            calibration=e.Calibration(unrelated=0.1, relevant=0.4, exact=0.95),
        )
        return e.ListModelsResponse(models=[model])


@asynccontextmanager
async def instant_embedder() -> AsyncIterator[InstantEmbedder]:
    """A running one."""
    servicer = InstantEmbedder()
    # Loading blocks this process's loop: the pings that pile up meanwhile are no attack.
    pings = ("grpc.http2.max_ping_strikes", 0)
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0), pings))
    embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(servicer, server)
    servicer.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield servicer
    finally:
        await server.stop(0)


@contextmanager
def retriever(database: testdb.Database, embedder_port: int) -> Iterator[tuple[int, int]]:
    """The retriever with its worker in a process of its own: (port, process id)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    prefix = "NIANLUN_RETRIEVER_"
    env = {
        **os.environ,
        "NIANLUN_SERVICE_KEY": keys.create(
            database.owner_dsn, "nianlun:service", scopes=("service",)
        ),
        f"{prefix}DATABASE_DSN": database.role_dsn("retriever"),
        f"{prefix}LISTEN": f"127.0.0.1:{port}",
        f"{prefix}EMBEDDER_TARGET": f"127.0.0.1:{embedder_port}",
        f"{prefix}WORKER_IN_PROCESS": "true",
        f"{prefix}STATEMENT_TIMEOUT_S": "600",
        "NIANLUN_LOG_LEVEL": "WARNING",
    }
    command, arguments = leash([sys.executable, "-m", "services.retriever"], signal.SIGTERM)
    process = subprocess.Popen(command, env=env, **arguments)
    try:
        yield port, process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def wait_ready(port: int) -> None:
    """Until the service says SERVING; TimeoutError."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            try:
                answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=2)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.2)
                continue
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
            await asyncio.sleep(0.2)
    raise TimeoutError("the retriever does not come up")


@dataclass(frozen=True)
class Bench:
    """What every measurement needs. `pid`: the retriever's process."""

    database: testdb.Database
    stack: Stack
    embedder: InstantEmbedder
    pid: int

    def client(self) -> Client:
        """A new tenant."""
        return self.stack.client(self.database.tenant())

    def memory_mb(self) -> dict[str, float]:
        """Resident memory of the retriever, and what PostgreSQL's processes hold together (its
        cache once)."""
        server = psutil.Process(int(self._postmaster().read_text().splitlines()[0]))
        processes = [server, *server.children(recursive=True)]
        shares = [p.memory_full_info().pss for p in processes if p.is_running()]
        return {
            "retriever": psutil.Process(self.pid).memory_info().rss / 2**20,
            "postgres": sum(shares) / 2**20,
        }

    def _postmaster(self) -> Path:
        with self.database.connect() as conn:
            row = conn.execute("SHOW data_directory").fetchone()
        return Path(str(row["data_directory"] if row else "")) / "postmaster.pid"


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    """Everything up, on an empty database."""
    with testdb.serve("embedded", postgres_settings()) as server:
        databases = testdb.Databases(server)
        database = databases.new()
        async with instant_embedder() as embedder:
            with retriever(database, embedder.port) as (port, pid):
                await wait_ready(port)
                stack = Stack(
                    database,
                    services=(),
                    workers=False,
                    targets={"retriever": f"127.0.0.1:{port}"},
                )
                try:
                    yield Bench(database, stack, embedder, pid)
                finally:
                    await stack.stop()
        databases.drop_all()


@dataclass(frozen=True)
class _Run:
    """What the handler of an index job reads of it."""

    tenant_id: str
    subject: dict[str, str]


async def build_index(database: testdb.Database, tenant_id: str, collection: str) -> dict[str, Any]:
    """Builds a collection's HNSW index by the handler of the product's own job."""
    settings = DatabaseSettings(
        dsn=SecretStr(database.role_dsn("retriever")), statement_timeout_s=600.0
    )
    db = Database(settings, schema="retriever")
    await db.open()
    try:
        promoter = Promoter(db, SecretStr(database.role_dsn("maintenance")), INDEX_MEMORY_MB)
        run: Any = _Run(tenant_id, {"collection_id": collection, "model_id": speed_data.MODEL})
        started = time.perf_counter()
        with service_call(tenant_id, secrets.token_hex(4)):
            result = await promoter.run(run)
        return {"build_s": time.perf_counter() - started, **result}
    finally:
        await db.close()
