"""Composition roots of the memory service and of its worker: settings in, App out."""

from __future__ import annotations

import asyncio

import grpc.aio

from nianlun.embedder.v1 import embedder_pb2_grpc
from nianlun.memory.v1 import memory_pb2, memory_pb2_grpc
from services.common import logs
from services.common.auth import KeyVerifier
from services.common.db import Database
from services.common.grpc.client import channel
from services.common.grpc.health import Readiness
from services.common.grpc.server import GrpcServer
from services.common.jobs import Jobs
from services.common.llm import ChatClient
from services.common.periodic import Periodic
from services.common.telemetry import Telemetry
from services.memory.background import Background
from services.memory.deps import SCHEMA, Deps
from services.memory.digest import Digester
from services.memory.embedding import GrpcEmbedder
from services.memory.extraction.extractor import LlmExtractor, RulesExtractor
from services.memory.grouping import TurnWriter
from services.memory.index import IndexCache
from services.memory.servicer import MemoryServicer
from services.memory.settings import MemorySettings
from services.memory.summarise import Summariser
from services.memory.wake import Waker

_FULL_NAME = memory_pb2.DESCRIPTOR.services_by_name["MemoryService"].full_name
_ADMIN = ("ListUsers", "UpdateSettings")


class _Parts:
    """What service and worker share; opened and closed together."""

    def __init__(self, settings: MemorySettings, name: str) -> None:
        self.settings = settings
        database = settings.database(name)
        self.telemetry = Telemetry(settings.chassis, name)
        self.db = Database(database, schema=SCHEMA)
        self.telemetry.metrics.watch_pool(name, self.db.pool_state)
        self.jobs = Jobs(
            self.db,
            SCHEMA,
            database,
            settings.jobs,
            service_key=settings.chassis.service_key,
            metrics=self.telemetry.metrics,
        )
        self.readiness = Readiness(
            [("database", self.db.ready)],
            interval_s=settings.chassis.readiness_interval_s,
            timeout_s=settings.chassis.readiness_timeout_s,
        )
        self.llm = ChatClient(settings.llm, self.telemetry) if settings.llm.configured else None
        self.waker = Waker(self.db)
        self.channel: grpc.aio.Channel | None = None
        self.deps: Deps | None = None
        self.sweeper: Periodic | None = None

    async def open(self) -> Deps:
        """Open pool and channel; StartupError when the database cannot be reached."""
        await self.db.open()
        # A channel belongs to the loop it is made in.
        self.channel = channel(
            self.settings.embedder_target,
            margin_s=self.settings.chassis.deadline_margin_s,
            tls_ca_file=self.settings.chassis.tls_ca_file,
        )
        embedder = GrpcEmbedder(
            embedder_pb2_grpc.EmbedderServiceStub(self.channel),
            self.settings.embed_model,
            self.settings.embed_timeout_s,
        )
        cache = IndexCache(
            self.settings.cache_users, self.settings.cache_items, self.settings.cache_s
        )
        self.sweeper = Periodic("index sweep", self.settings.cache_s / 4, cache.sweep)
        self.sweeper.start()
        self.waker.start()
        self.deps = Deps(
            self.settings, self.db, self.jobs, embedder, cache, TurnWriter(self.db), self.waker.poke
        )
        return self.deps

    def background(self, deps: Deps) -> Background:
        """The handlers, registered."""
        extractor = LlmExtractor(self.llm, self.settings.extract_timeout_s) if self.llm else None
        work = Background(
            deps, Digester(deps, RulesExtractor(), extractor), Summariser(deps, self.llm)
        )
        work.register(self.jobs)
        return work

    async def close(self) -> None:
        """Close everything that was opened."""
        await self.waker.stop()
        if self.sweeper is not None:
            await self.sweeper.stop()
        if self.llm is not None:
            await self.llm.aclose()
        if self.channel is not None:
            await self.channel.close()
        await self.db.close()
        self.telemetry.close()


class _WorkLoop:
    """The worker's task."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def alive(self) -> str | None:
        """None while it works, else why not."""
        return "the worker has ended" if self._task is None or self._task.done() else None

    def start(self) -> None:
        """Begin to work."""
        self._task = asyncio.create_task(self._jobs.run_worker(self._stop), name="memory worker")
        self._task.add_done_callback(_tell_failure)

    async def stop(self) -> None:
        """Let running jobs finish, then stop."""
        self._stop.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


def _tell_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logs.get(__name__).error("worker_failed", exc_info=error)


class MemoryApp:
    """The gRPC service; with `worker_in_process` also the worker."""

    def __init__(self, settings: MemorySettings) -> None:
        self._settings = settings
        self._parts = _Parts(settings, "memory")
        self._server: GrpcServer | None = None
        self._work: _WorkLoop | None = None

    @property
    def port(self) -> int:
        """The port served on; 0 before start."""
        return self._server.port if self._server is not None else 0

    @property
    def readiness(self) -> Readiness:
        """What health reports."""
        return self._parts.readiness

    async def start(self) -> None:
        """Open, register, serve."""
        parts = self._parts
        deps = await parts.open()
        chassis = self._settings.chassis
        verifier = KeyVerifier(
            parts.db, cache_s=chassis.auth_cache_s, outage_s=chassis.auth_outage_s
        )
        parts.telemetry.serve(parts.readiness)
        self._server = GrpcServer(
            self._settings,
            [
                (
                    _FULL_NAME,
                    memory_pb2_grpc.add_MemoryServiceServicer_to_server,
                    MemoryServicer(deps),
                )
            ],
            parts.readiness,
            verifier,
            telemetry=parts.telemetry,
            scopes={f"{_FULL_NAME}/{method}": "admin" for method in _ADMIN},
        )
        await self._server.start()
        if self._settings.worker_in_process:
            parts.background(deps)
            self._work = _WorkLoop(parts.jobs)
            self._work.start()

    async def stop(self) -> None:
        """Drain calls and jobs, then close."""
        if self._server is not None:
            await self._server.stop()
        if self._work is not None:
            await self._work.stop()
        await self._parts.close()


class WorkerApp:
    """The worker alone."""

    def __init__(self, settings: MemorySettings) -> None:
        self._parts = _Parts(settings, "memory-worker")
        self._work: _WorkLoop | None = None

    @property
    def port(self) -> int:
        """A worker serves nothing."""
        return 0

    @property
    def readiness(self) -> Readiness:
        """The database's state."""
        return self._parts.readiness

    async def start(self) -> None:
        """Open and begin to work."""
        deps = await self._parts.open()
        self._parts.background(deps)
        self._parts.telemetry.serve(self._parts.readiness)
        self._work = _WorkLoop(self._parts.jobs)
        self._work.start()
        self._parts.readiness.add("worker", self._work.alive)
        await self._parts.readiness.start([])

    async def stop(self) -> None:
        """Let running jobs finish, then close."""
        if self._work is not None:
            await self._work.stop()
        await self._parts.readiness.stop()
        await self._parts.close()


def build(settings: MemorySettings) -> MemoryApp:
    """The service."""
    return MemoryApp(settings)


def build_worker(settings: MemorySettings) -> WorkerApp:
    """The worker."""
    return WorkerApp(settings)
