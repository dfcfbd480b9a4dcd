"""What the benchmarks run on: an own PostgreSQL, keys, service processes, an embedder without a
model."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from benchmarks.memory.hashing import DIMENSIONS, hashed_vector
from nianlun.embedder.v1 import embedder_pb2 as e
from nianlun.embedder.v1 import embedder_pb2_grpc
from services.cli.health import grpc_serving
from services.common.auth import admin
from services.common.migrations import runner
from services.local.environment import free_ports
from services.local.postgres import EmbeddedPostgres

ROOT = Path(__file__).resolve().parents[2]


class HashEmbedder(embedder_pb2_grpc.EmbedderServiceServicer):
    """Answers at once, so that embedding time is apart."""

    async def Embed(self, request: e.EmbedRequest, context: Any) -> e.EmbedResponse:
        """Hashed vectors."""
        items = [
            e.EmbedItem(dense=e.DenseVector(values=hashed_vector(t)), token_count=len(t))
            for t in request.texts
        ]
        return e.EmbedResponse(items=items, model="hash", revision="1", dimensions=DIMENSIONS)

    async def ListModels(self, request: e.ListModelsRequest, context: Any) -> e.ListModelsResponse:
        """One model without token vectors."""
        model = e.Model(id="hash", revision="1", dimensions=DIMENSIONS, default_embedder=True)
        return e.ListModelsResponse(models=[model])

    async def Rerank(self, request: e.RerankRequest, context: Any) -> e.RerankResponse:
        """Memory does not ask for it."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no reranker")
        return e.RerankResponse()


async def serve_embedder(port: int) -> None:
    """Serve until the process is ended."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(HashEmbedder(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


@dataclass
class Rig:
    """Processes over one database; each can be killed and started again."""

    postgres: EmbeddedPostgres
    key: str
    tenant_id: str
    environment: dict[str, str]
    memory_port: int
    embedder_port: int
    bare_port: int
    logs: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """Address of the memory service."""
        return f"127.0.0.1:{self.memory_port}"

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Call metadata with the key."""
        return (("authorization", f"Bearer {self.key}"),)

    def spawn(self, name: str) -> None:
        """Start `memory`, `worker`, `embedder` or `bare` (a server that stores nothing)."""
        commands = {
            "memory": ["-m", "services.memory"],
            "worker": ["-m", "services.memory.worker"],
            "embedder": ["-m", "benchmarks.memory.rig", str(self.embedder_port)],
            "bare": ["-m", "benchmarks.memory.ceiling", str(self.bare_port)],
        }
        with (self.logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *commands[name]],
                cwd=ROOT, env=self.environment, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """SIGKILL one process."""
        process = self.processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_postgres(self) -> None:
        """SIGKILL the postmaster; its children notice and end."""
        pid = self.postgres.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    def restart_postgres(self) -> None:
        """Start the server again on the same data."""
        self.postgres.stop()
        self.postgres.start()

    def wait_serving(self, seconds: float = 30.0) -> None:
        """Until the memory service reports SERVING."""
        until = time.monotonic() + seconds
        while not grpc_serving(self.target, 1.0):
            if time.monotonic() > until:
                raise RuntimeError((self.logs / "memory.log").read_text()[-2_000:])
            time.sleep(0.2)


@contextmanager
def rig(**environment: str) -> Iterator[Rig]:
    """A fresh database with the embedder running; `memory` and `worker` are spawned by the
    caller."""
    folder = Path(tempfile.mkdtemp(prefix="nl-bench-", dir="/tmp"))
    postgres = EmbeddedPostgres(folder / "pg")
    postgres.start()
    made: Rig | None = None
    try:
        owner = postgres.dsn()
        runner.migrate(owner)
        admin.create_tenant(owner, "bench")
        key = admin.create_key(owner, "bench", ("read", "write", "admin"), name="bench").key
        service_key = admin.create_service_key(owner).key
        memory_port, embedder_port, bare_port = free_ports(3)
        paths = os.pathsep.join(str(ROOT / p) for p in (".", "clients/python", "protos/gen"))
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("NIANLUN_", "LLM_"))},
            "PYTHONPATH": paths,
            "NIANLUN_SERVICE_KEY": service_key,
            "NIANLUN_LOG_LEVEL": "WARNING",
            "NIANLUN_MEMORY_LISTEN": f"127.0.0.1:{memory_port}",
            "NIANLUN_MEMORY_EMBEDDER_TARGET": f"127.0.0.1:{embedder_port}",
            "NIANLUN_MEMORY_DATABASE_DSN": postgres.dsn(user="nianlun_memory"),
            **environment,
        }
        made = Rig(postgres, key, "bench", env, memory_port, embedder_port, bare_port, folder)
        made.spawn("embedder")
        yield made
    finally:
        for process in ({} if made is None else made.processes).values():
            if process.poll() is None:
                process.kill()
                process.wait()
        postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(serve_embedder(int(sys.argv[1])))
