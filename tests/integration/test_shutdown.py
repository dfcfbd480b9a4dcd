"""G6: a service that is told to stop under load finishes what it has begun and loses nothing."""

from __future__ import annotations

import asyncio
import itertools

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from nianlun.memory.v1 import memory_pb2_grpc
from tests.support.db import Database, Tenant
from tests.support.processes import service_process
from tests.support.requests import REQUESTS, Ids

CALLERS = 8
NO_RETRY = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))


class Load:
    """Callers that append until the server is gone; remembers what was acknowledged."""

    def __init__(self, port: int, tenant: Tenant) -> None:
        self._target = f"127.0.0.1:{port}"
        self._tenant = tenant
        self.acknowledged: list[str] = []
        self.failures: list[grpc.aio.AioRpcError] = []

    async def run(self) -> None:
        """All callers, each until its first failure."""
        await asyncio.gather(*(self._caller(number) for number in range(CALLERS)))

    async def _caller(self, number: int) -> None:
        async with grpc.aio.insecure_channel(self._target, NO_RETRY) as channel:
            stub = memory_pb2_grpc.MemoryServiceStub(channel)
            for turn in itertools.count():
                ids = Ids(user_id=f"g6-{number}", session_id=f"s{turn // 50}")
                request = REQUESTS["memory.AppendTurn"](ids)
                try:
                    receipt = await stub.AppendTurn(
                        request, metadata=self._tenant.metadata, timeout=20
                    )
                except grpc.aio.AioRpcError as error:
                    self.failures.append(error)
                    return
                self.acknowledged.append(receipt.turn_id)


async def _watch(port: int, seen: list[int]) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", NO_RETRY) as channel:
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        try:
            async for answer in watching:
                seen.append(answer.status)  # noqa: PERF401 - kept when the stream breaks
        except grpc.aio.AioRpcError:
            return
        finally:
            watching.cancel()


async def test_g6_sigterm_under_load_loses_no_acknowledged_write(database: Database) -> None:
    tenant = database.tenant()
    environment = {
        "NIANLUN_MEMORY_LISTEN": "127.0.0.1:0",
        "NIANLUN_MEMORY_DATABASE_DSN": database.role_dsn("memory"),
        "NIANLUN_MEMORY_EMBEDDER_TARGET": "127.0.0.1:1",
        "NIANLUN_DRAIN_S": "0.3",
        "NIANLUN_GRACE_S": "10",
    }
    health: list[int] = []
    async with service_process("services.memory", environment) as service:
        await service.ready()
        watching = asyncio.create_task(_watch(service.port, health))
        load = Load(service.port, tenant)
        running = asyncio.create_task(load.run())
        while len(load.acknowledged) < 50:
            assert not running.done(), (load.failures, service.output)
            await asyncio.sleep(0.05)
        service.terminate()
        assert await service.wait() == 0, service.output
        await asyncio.wait_for(running, 20)
        await asyncio.wait_for(watching, 5)
    # The balancer was told before calls were refused.
    states = health_pb2.HealthCheckResponse
    assert health[0] == states.SERVING
    assert health[-1] == states.NOT_SERVING
    # Every caller ended because the server was gone, none because its call broke in the middle.
    assert {error.code() for error in load.failures} == {grpc.StatusCode.UNAVAILABLE}
    with database.connect() as conn:
        rows = conn.execute(
            "SELECT turn_id::text AS id FROM memory.turns WHERE tenant_id = %s",
            (tenant.tenant_id,),
        ).fetchall()
    stored = {str(row["id"]) for row in rows}
    assert len(set(load.acknowledged)) == len(load.acknowledged)
    assert set(load.acknowledged) <= stored
    # At most one call of each caller may have been stored without its answer getting through.
    assert len(stored) - len(load.acknowledged) <= CALLERS
