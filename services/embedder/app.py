"""Composition root of the embedder: settings in, a server that can be started out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from nianlun.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from services.common import logs
from services.common.auth import KeyVerifier
from services.common.auth.verifier import Lookup
from services.common.db import Database
from services.common.errors import StartupError
from services.common.grpc.health import Readiness
from services.common.grpc.server import GrpcServer
from services.common.telemetry import Telemetry
from services.embedder.cache import VectorCache
from services.embedder.catalogue import Catalogue
from services.embedder.fleet import Fleet
from services.embedder.front import Front
from services.embedder.metrics import EmbedderMetrics
from services.embedder.servicer import EmbedderServicer, RerankLimits
from services.embedder.settings import EmbedderSettings

SERVICE = embedder_pb2.DESCRIPTOR.services_by_name["EmbedderService"].full_name
_TOKENISER_THREADS = 2


class EmbedderApp:
    """The embedder of one process."""

    def __init__(self, settings: EmbedderSettings, lookup: Lookup | None = None) -> None:
        self._settings = settings
        self._log = logs.get(__name__)
        self._executor = ThreadPoolExecutor(_TOKENISER_THREADS, "tokenise")
        self._telemetry = Telemetry(settings.chassis, "embedder")
        self._db = None if lookup else Database(settings.database("nianlun-embedder"))
        self._lookup = lookup
        self._fleet: Fleet | None = None
        self._server: GrpcServer | None = None
        self.readiness = Readiness(
            interval_s=settings.chassis.readiness_interval_s,
            timeout_s=settings.chassis.readiness_timeout_s,
        )

    @property
    def port(self) -> int:
        """The port served on; 0 before the start."""
        return 0 if self._server is None else self._server.port

    @property
    def catalogue(self) -> Catalogue:
        """The models served; only after the start."""
        if self._fleet is None:
            raise StartupError("The embedder has not been started.")
        return self._fleet.catalogue

    async def start(self) -> None:
        """Load the models, run each once, then serve. Raises StartupError."""
        settings = self._settings
        cache = VectorCache(settings.cache_mb * 1024 * 1024)
        self.front = front = Front(cache, self._executor)
        metrics = EmbedderMetrics(self._telemetry, cache)
        if self._db is not None:
            self._telemetry.metrics.watch_pool("embedder", self._db.pool_state)
            await self._db.open()
        self._fleet = Fleet(settings, front, metrics)
        await self._fleet.start()
        for worker in self._fleet.workers:
            metrics.watch_queue(worker)
        self._telemetry.serve(self.readiness)
        self.readiness.add("models", self._fleet.ready)
        limits = RerankLimits(settings.rerank_max_pairs, settings.rerank_timeout_s)
        servicer = EmbedderServicer(self._fleet.catalogue, front, limits, self._telemetry.tracer)
        self._server = GrpcServer(
            settings,
            [(SERVICE, embedder_pb2_grpc.add_EmbedderServiceServicer_to_server, servicer)],
            self.readiness,
            self._verifier(),
            self._telemetry,
        )
        await self._server.start()

    async def stop(self) -> None:
        """Drain, then close the models and the pool."""
        if self._server is not None:
            await self._server.stop()
        if self._fleet is not None:
            await self._fleet.stop()
        if self._db is not None:
            await self._db.close()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._telemetry.close()

    def _verifier(self) -> KeyVerifier:
        lookup = self._lookup or self._db
        assert lookup is not None
        chassis = self._settings.chassis
        return KeyVerifier(lookup, cache_s=chassis.auth_cache_s, outage_s=chassis.auth_outage_s)


def build(settings: EmbedderSettings, lookup: Lookup | None = None) -> EmbedderApp:
    """The embedder as a process or a test starts it.

    With `lookup`, keys are checked by it and no database is needed (benchmarks, single-tenant use).
    """
    return EmbedderApp(settings, lookup)
