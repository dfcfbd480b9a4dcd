"""A real process: readable start-up errors, SIGTERM under load."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import grpc
import pytest

from nianlun.memory.v1 import memory_pb2, memory_pb2_grpc

_APP = """
    import asyncio, sys
    from nianlun.memory.v1 import memory_pb2, memory_pb2_grpc
    from services.common import process
    from services.common.auth import KeyVerifier
    from services.common.db import Database
    from services.common.grpc.health import Readiness
    from services.common.grpc.server import GrpcServer
    from services.common.settings import ServiceSettings, env_config, load

    class Settings(ServiceSettings):
        model_config = env_config("NIANLUN_TESTAPP_")

    class Servicer(memory_pb2_grpc.MemoryServiceServicer):
        def __init__(self, db):
            self._db = db

        async def CancelJob(self, request, ctx):
            async with self._db.tenant() as conn:
                await conn.execute(
                    "INSERT INTO memory.rings SELECT current_setting('nianlun.tenant_id'), %s",
                    (request.job_id,))
            await asyncio.sleep(0.05)
            return memory_pb2.CancelJobResponse()

    class App:
        def __init__(self, settings):
            self._db = Database(settings.database("testapp"))
            self.readiness = Readiness([("database", self._db.ready)])
            self._server = GrpcServer(settings, [(
                "nianlun.memory.v1.MemoryService",
                memory_pb2_grpc.add_MemoryServiceServicer_to_server, Servicer(self._db))],
                self.readiness, KeyVerifier(self._db))
            self.port = 0

        async def start(self):
            await self._db.open(timeout_s=2)
            self.port = await self._server.start()
            print(self.port, flush=True)

        async def stop(self):
            await self._server.stop()
            await self._db.close()

    def build():
        settings = load(Settings)
        return App(settings), settings

    sys.exit(process.main("testapp", build))
"""


def _start(tmp_path: Path, **environment: str) -> subprocess.Popen:
    script = tmp_path / "app.py"
    script.write_text(textwrap.dedent(_APP))
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )


def test_a_missing_setting_is_a_readable_start_up_error(tmp_path: Path):
    process = _start(tmp_path)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 78
    assert "NIANLUN_TESTAPP_DATABASE_DSN" in err
    assert "Traceback" not in err


def test_a_missing_database_is_a_readable_start_up_error(tmp_path: Path):
    process = _start(tmp_path, NIANLUN_TESTAPP_DATABASE_DSN="postgresql://u:pw@127.0.0.1:1/d")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 78
    assert "Start PostgreSQL" in err
    assert "Traceback" not in err


async def test_g06_sigterm_under_load_loses_no_acknowledged_write(chassis_db, tmp_path: Path):
    tenant = chassis_db.tenant()
    process = _start(
        tmp_path,
        NIANLUN_TESTAPP_DATABASE_DSN=chassis_db.role_dsn("memory"),
        NIANLUN_DRAIN_S="0.3",
        NIANLUN_LOG_LEVEL="WARNING",  # nobody reads the pipe: a line per call would fill it
    )
    port = int(await asyncio.to_thread(process.stdout.readline))
    acknowledged: list[str] = []
    failed: list[grpc.StatusCode] = []
    stop = asyncio.Event()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = memory_pb2_grpc.MemoryServiceStub(channel)

        async def writer(name: int) -> None:
            for number in range(10_000):
                ring = f"{name}-{number}"
                request = memory_pb2.CancelJobRequest(job_id=ring, request_id=ring)
                try:
                    await stub.CancelJob(request, metadata=tenant.metadata, timeout=10)
                except grpc.aio.AioRpcError as error:
                    failed.append(error.code())
                    return
                acknowledged.append(ring)
                if stop.is_set():
                    return

        writers = [asyncio.create_task(writer(name)) for name in range(16)]
        async with asyncio.timeout(60):
            while len(acknowledged) < 200:  # noqa: ASYNC110 - the writers fill it
                await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        await asyncio.gather(*writers)
    assert await asyncio.to_thread(process.wait, 20) == 0
    # gRPC drops a call that arrives in the moment of the shutdown as CANCELLED; it never began.
    assert set(failed) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    assert failed.count(grpc.StatusCode.UNAVAILABLE) >= 12
    with chassis_db.connect() as owner:
        rows = owner.execute(
            "SELECT ring_id FROM memory.rings WHERE tenant_id = %s", (tenant.tenant_id,)
        ).fetchall()
    stored = {row["ring_id"] for row in rows}
    assert stored == set(acknowledged), "every call that began was answered"


async def test_a_call_that_comes_while_draining_is_refused_as_unavailable(serve, chassis_db):
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(request, ctx):
        begun.set()
        await go.wait()
        return memory_pb2.CancelJobResponse()

    running = await serve(CancelJob=slow)
    tenant = chassis_db.tenant()
    stub = memory_pb2_grpc.MemoryServiceStub(running.channel())
    request = memory_pb2.CancelJobRequest(job_id="j", request_id="r")
    first = asyncio.ensure_future(stub.CancelJob(request, metadata=tenant.metadata))
    await begun.wait()
    stopping = asyncio.create_task(running.server.stop())
    await asyncio.sleep(0.1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.CancelJob(request, metadata=tenant.metadata)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    go.set()
    await first
    await stopping
