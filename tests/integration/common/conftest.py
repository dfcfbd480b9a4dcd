"""A database of the chassis' own, and servers with a scripted servicer behind all interceptors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import psycopg
import pytest
from pydantic import SecretStr

from nianlun.embedder.v1 import embedder_pb2_grpc
from nianlun.memory.v1 import memory_pb2_grpc
from services.common.auth import KeyVerifier
from services.common.db import Database
from services.common.grpc.health import Readiness
from services.common.grpc.server import GrpcServer
from services.common.settings import ChassisSettings, DatabaseSettings
from services.common.telemetry import Telemetry
from tests.support import db as testdb

CHASSIS_TABLES = """
CREATE SCHEMA IF NOT EXISTS memory;
GRANT USAGE ON SCHEMA memory TO nianlun_memory;
SELECT auth.create_jobs_table('memory'), auth.create_requests_table('memory');
CREATE TABLE memory.rings (
    tenant_id text NOT NULL, ring_id text NOT NULL, body text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant_id, ring_id)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON memory.rings TO nianlun_memory;
SELECT auth.protect('memory.rings');
"""


async def until(check: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    """Look every 20 ms until ``check`` says true."""
    while True:
        found = check()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.02)


@pytest.fixture(scope="session")
def chassis_db(databases: testdb.Databases) -> testdb.Database:
    """A migrated database with one more protected table, ``memory.rings``."""
    made = databases.new()
    with psycopg.connect(made.owner_dsn, autocommit=True) as conn:
        conn.execute(CHASSIS_TABLES)
    return made


def settings_of(
    database: testdb.Database, service: str = "memory", **values: Any
) -> DatabaseSettings:
    """Settings of one service's role on ``database``."""
    return DatabaseSettings(dsn=SecretStr(database.role_dsn(service)), **values)


@pytest.fixture
async def memory_db(chassis_db: testdb.Database) -> AsyncIterator[Database]:
    """A pool of the memory service's role."""
    pool = Database(settings_of(chassis_db), schema="memory")
    await pool.open()
    yield pool
    await pool.close()


@dataclass
class ServerSettings:
    """What GrpcServer reads."""

    listen: str = "127.0.0.1:0"
    chassis: ChassisSettings = field(
        default_factory=lambda: ChassisSettings(drain_s=0, grace_s=2, auth_cache_s=0)
    )


@dataclass
class Running:
    """A server that runs, and what tests look at."""

    server: GrpcServer
    readiness: Readiness
    telemetry: Telemetry
    target: str

    def channel(self, **options: Any) -> grpc.aio.Channel:
        """A bare channel without any of our client code."""
        return grpc.aio.insecure_channel(
            self.target, options=[("grpc.max_receive_message_length", -1), *options.items()]
        )


Serve = Callable[..., Awaitable[Running]]


@pytest.fixture
async def serve(memory_db: Database) -> AsyncIterator[Serve]:
    """Start a server; keyword arguments are handlers of MemoryService and EmbedderService."""
    running: list[Running] = []

    async def start(
        settings: ServerSettings | None = None,
        readiness: Readiness | None = None,
        verifier: KeyVerifier | None = None,
        telemetry: Telemetry | None = None,
        **handlers: Any,
    ) -> Running:
        settings = settings or ServerSettings()
        readiness = readiness or Readiness([("database", memory_db.ready)])
        telemetry = telemetry or Telemetry(settings.chassis, "test")
        memory, embedder = memory_pb2_grpc.MemoryServiceServicer(), _embedder()
        for name, handler in handlers.items():
            setattr(embedder if hasattr(embedder, name) else memory, name, handler)
        server = GrpcServer(
            settings,
            [
                (
                    "nianlun.memory.v1.MemoryService",
                    memory_pb2_grpc.add_MemoryServiceServicer_to_server,
                    memory,
                ),
                (
                    "nianlun.embedder.v1.EmbedderService",
                    embedder_pb2_grpc.add_EmbedderServiceServicer_to_server,
                    embedder,
                ),
            ],
            readiness,
            verifier or KeyVerifier(memory_db, cache_s=settings.chassis.auth_cache_s),
            telemetry,
        )
        port = await server.start()
        running.append(Running(server, readiness, telemetry, f"127.0.0.1:{port}"))
        return running[-1]

    yield start
    for item in running:
        await item.server.stop()


def _embedder() -> embedder_pb2_grpc.EmbedderServiceServicer:
    return embedder_pb2_grpc.EmbedderServiceServicer()
