"""G4: PostgreSQL goes away and comes back; nothing is restarted."""

import asyncio
import time
from collections.abc import Iterator

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from pydantic import SecretStr

from nianlun.memory.v1 import memory_pb2, memory_pb2_grpc
from services.common.auth import KeyVerifier
from services.common.db import Database
from services.common.grpc.health import Readiness
from services.common.grpc.server import GrpcServer
from services.common.jobs import JobRun, Jobs
from services.common.jobs.rpc import JobRpcs
from services.common.settings import ChassisSettings
from tests.integration.common.conftest import CHASSIS_TABLES, ServerSettings, settings_of, until
from tests.integration.common.test_jobs import FAST
from tests.support import db as testdb
from tests.support.embedded import EmbeddedPostgres


@pytest.fixture
def own_server() -> Iterator[tuple[EmbeddedPostgres, testdb.Database]]:
    """A server of this test's own: stopping the shared one would stop everybody."""
    postgres = EmbeddedPostgres()
    postgres.start()
    server = testdb.Server(
        "embedded",
        postgres.dsn("postgres"),
        lambda dbname, user: postgres.dsn(dbname, user or "postgres"),
    )
    yield postgres, testdb.Databases(server).new()
    postgres.remove()


class _Servicer(memory_pb2_grpc.MemoryServiceServicer):
    def __init__(self, rpcs: JobRpcs) -> None:
        self._rpcs = rpcs

    async def GetJob(self, request, ctx):
        return memory_pb2.GetJobResponse(job=await self._rpcs.get(request))


@pytest.mark.slow
async def test_g04_unavailable_with_retry_info_then_recovery_without_restart(own_server):
    postgres, database = own_server
    with database.connect() as owner:
        owner.execute(CHASSIS_TABLES)
    tenant = database.tenant()
    db = Database(settings_of(database, pool_max=4, pool_timeout_s=2), schema="memory")
    await db.open()
    jobs = Jobs(db, "memory", settings_of(database), FAST, service_key=SecretStr("nl_x"))
    done: list[str] = []

    async def handler(run: JobRun) -> None:
        done.append(run.job_id)

    jobs.register("k", handler)
    readiness = Readiness([("database", db.ready)], interval_s=0.2, timeout_s=1)
    server = GrpcServer(
        ServerSettings(chassis=ChassisSettings(drain_s=0, grace_s=1, auth_cache_s=0.1)),
        [
            (
                "nianlun.memory.v1.MemoryService",
                memory_pb2_grpc.add_MemoryServiceServicer_to_server,
                _Servicer(JobRpcs(jobs, db, "memory")),
            )
        ],
        readiness,
        KeyVerifier(db, cache_s=0.1),
    )
    port = await server.start()
    stop = asyncio.Event()
    worker = asyncio.create_task(jobs.run_worker(stop))
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    stub = memory_pb2_grpc.MemoryServiceStub(channel)

    async def enqueue() -> str:
        async with db.tenant(tenant.tenant_id) as conn:
            return await jobs.enqueue(conn, "k", {})

    async def get(job_id: str):
        request = memory_pb2.GetJobRequest(job_id=job_id)
        return await stub.GetJob(request, metadata=tenant.metadata, timeout=5)

    try:
        first = await enqueue()
        await until(lambda: first in done)
        await get(first)
        assert readiness.ready

        await asyncio.to_thread(postgres.stop)
        stopped = time.monotonic()
        while time.monotonic() - stopped < 8:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await get(first)
            # Told by the service, not by the call's own deadline.
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            status = rpc_status.from_call(caught.value)
            assert any(d.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for d in status.details)
            await asyncio.sleep(0.2)
        assert not readiness.ready

        await asyncio.to_thread(postgres.start)
        async with asyncio.timeout(15):
            await until(lambda: readiness.ready)
            second = await enqueue()
            await until(lambda: second in done)
        await get(second)
    finally:
        stop.set()
        await worker
        await channel.close()
        await server.stop()
        await db.close()
