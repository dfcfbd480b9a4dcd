"""Composition root: settings in, a running retriever (or its worker) out. No logic here."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import grpc.aio

from nianlun.retriever.v1 import retriever_pb2_grpc
from services.common.auth import KeyVerifier
from services.common.db import Database
from services.common.grpc import client
from services.common.grpc.health import Readiness
from services.common.grpc.server import GrpcServer
from services.common.jobs import Jobs
from services.common.jobs.rpc import JobRpcs
from services.common.periodic import Periodic
from services.common.telemetry import Telemetry
from services.retriever.calibrating import CALIBRATE, Calibrator
from services.retriever.calibrations import Calibrations
from services.retriever.embedding import GrpcEmbedder
from services.retriever.embeddings_jobs import REEMBED, Backfiller
from services.retriever.ingest import BACKFILL, INGEST, Ingester
from services.retriever.library import Library
from services.retriever.merging import MERGE, Merger
from services.retriever.promotion import DEMOTE, PROMOTE, Promoter
from services.retriever.searcher import Searcher
from services.retriever.servicer import SCHEMA, RetrieverServicer
from services.retriever.settings import RetrieverSettings
from services.search.cache import RamIndexCache

SERVICE: Final = "nianlun.retriever.v1.RetrieverService"
_ADMIN: Final = ("StartReembed", "SwitchEmbedding", "Calibrate")
_LONG_S: Final = 24 * 3600.0


@dataclass(frozen=True)
class Parts:
    """What service and worker are both made of."""

    db: Database
    channel: grpc.aio.Channel
    executor: ThreadPoolExecutor
    telemetry: Telemetry
    jobs: Jobs
    embedder: GrpcEmbedder
    calibrations: Calibrations
    searcher: Searcher
    sweeper: Periodic

    async def close(self) -> None:
        """Closes what was opened, in the order in which it depends on each other."""
        await self.sweeper.stop()
        await self.channel.close()
        self.executor.shutdown(wait=False, cancel_futures=True)
        await self.db.close()


def parts(settings: RetrieverSettings, process: str) -> Parts:
    """Everything below the servicer; must be called inside the running loop."""
    database = settings.database(process)
    db = Database(database, schema=SCHEMA)
    telemetry = Telemetry(settings.chassis, process)
    telemetry.metrics.watch_pool(process, db.pool_state)
    channel = client.channel(
        settings.embedder_target,
        margin_s=settings.chassis.deadline_margin_s,
        tls_ca_file=settings.chassis.tls_ca_file,
    )
    embedder = GrpcEmbedder(channel)
    executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="retriever")
    calibrations = Calibrations(db, embedder)
    cache = RamIndexCache(max_tokens=settings.cache_tokens, max_idle_s=settings.cache_s)
    sweeper = Periodic("index sweep", settings.cache_s / 4, cache.sweep)
    sweeper.start()
    return Parts(
        db=db,
        channel=channel,
        executor=executor,
        telemetry=telemetry,
        jobs=Jobs(
            db,
            SCHEMA,
            database,
            settings.jobs,
            service_key=settings.chassis.service_key,
            metrics=telemetry.metrics,
        ),
        embedder=embedder,
        calibrations=calibrations,
        searcher=Searcher(
            db,
            embedder,
            calibrations,
            executor,
            cache,
            embed_timeout_s=settings.embed_timeout_s,
        ),
        sweeper=sweeper,
    )


def register_handlers(made: Parts, settings: RetrieverSettings) -> None:
    """Tells the jobs who does what."""
    # Only the table's owner may build an index: without its DSN no job is queued that must fail.
    promote_at = settings.promote_at if settings.maintenance_dsn else None
    backfiller = Backfiller(made.db, made.jobs, made.embedder, promote_at)
    ingester = Ingester(made.db, made.jobs, made.embedder, made.executor, promote_at)
    promoter = Promoter(made.db, settings.maintenance_dsn, settings.index_memory_mb)
    calibrator = Calibrator(made.db, made.searcher, made.calibrations)
    jobs = made.jobs
    jobs.register(INGEST, ingester.run, timeout_s=_LONG_S, resumes=True, forget=ingester.forget)
    jobs.register(BACKFILL, backfiller.backfill, timeout_s=_LONG_S)
    jobs.register(REEMBED, backfiller.reembed, timeout_s=_LONG_S)
    jobs.register(MERGE, Merger(made.db).run, timeout_s=_LONG_S)
    jobs.register(PROMOTE, promoter.run, timeout_s=_LONG_S)
    jobs.register(DEMOTE, promoter.drop, timeout_s=_LONG_S)
    jobs.register(CALIBRATE, calibrator.run, timeout_s=_LONG_S, forget=calibrator.forget)


class RetrieverApp:
    """The gRPC service, with the worker beside it where settings say so."""

    def __init__(self, settings: RetrieverSettings) -> None:
        self._settings = settings
        self._parts: Parts | None = None
        self._server: GrpcServer | None = None
        self._worker: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        chassis = settings.chassis
        self.readiness = Readiness(
            interval_s=chassis.readiness_interval_s, timeout_s=chassis.readiness_timeout_s
        )

    @property
    def port(self) -> int:
        """The port served on, 0 before the start."""
        return self._server.port if self._server else 0

    async def start(self) -> None:
        """Opens the pool and serves."""
        made = self._parts = parts(self._settings, "retriever")
        await made.db.open()
        self.readiness.add("database", made.db.ready)
        library = Library(made.db, made.jobs, made.embedder, self._settings.default_model)
        servicer = RetrieverServicer(
            made.db,
            library,
            made.searcher,
            made.calibrations,
            JobRpcs(made.jobs, made.db, SCHEMA),
        )
        chassis = self._settings.chassis
        verifier = KeyVerifier(
            made.db, cache_s=chassis.auth_cache_s, outage_s=chassis.auth_outage_s
        )
        self._server = GrpcServer(
            self._settings,
            [(SERVICE, retriever_pb2_grpc.add_RetrieverServiceServicer_to_server, servicer)],
            self.readiness,
            verifier,
            made.telemetry,
            scopes={f"{SERVICE}/{name}": "admin" for name in _ADMIN},
        )
        made.telemetry.serve(self.readiness)
        await self._server.start()
        if self._settings.worker_in_process:
            register_handlers(made, self._settings)
            self._worker = asyncio.create_task(
                made.jobs.run_worker(self._stop, self._settings.worker_concurrency),
                name="retriever worker",
            )

    async def stop(self) -> None:
        """Drains, then closes."""
        self._stop.set()
        if self._server is not None:
            await self._server.stop()
        if self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)
        if self._parts is not None:
            await self._parts.close()


class RetrieverWorker:
    """The background worker as an app of its own."""

    port = 0

    def __init__(self, settings: RetrieverSettings) -> None:
        self._settings = settings
        self._parts: Parts | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self.readiness = Readiness(
            interval_s=settings.chassis.readiness_interval_s,
            timeout_s=settings.chassis.readiness_timeout_s,
        )

    async def start(self) -> None:
        """Opens the pool and begins to work."""
        made = self._parts = parts(self._settings, "retriever-worker")
        await made.db.open()
        self.readiness.add("database", made.db.ready)
        register_handlers(made, self._settings)
        made.telemetry.serve(self.readiness)
        self._task = asyncio.create_task(
            made.jobs.run_worker(self._stop, self._settings.worker_concurrency),
            name="retriever worker",
        )
        self.readiness.add("worker", self._alive)
        await self.readiness.start([])

    async def _alive(self) -> str | None:
        return "the worker has ended" if self._task is None or self._task.done() else None

    async def stop(self) -> None:
        """Lets running jobs finish for a while, then closes."""
        self._stop.set()
        await self.readiness.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        if self._parts is not None:
            await self._parts.close()


def build(settings: RetrieverSettings) -> RetrieverApp:
    """The service."""
    return RetrieverApp(settings)


def build_worker(settings: RetrieverSettings) -> RetrieverWorker:
    """The worker."""
    return RetrieverWorker(settings)
