"""Composition root: settings -> dependencies -> server. The only place where they meet."""

from __future__ import annotations

import asyncio

import grpc.aio

from nianlun.memory.v1 import memory_pb2_grpc
from nianlun.orchestrator.v1 import orchestrator_pb2_grpc
from nianlun.retriever.v1 import retriever_pb2_grpc
from services.common import logs
from services.common.auth import KeyVerifier
from services.common.auth.verifier import database_lookup
from services.common.db import Database
from services.common.grpc import client
from services.common.grpc.health import Readiness
from services.common.grpc.server import GrpcServer
from services.common.jobs import Jobs
from services.common.llm import provider_of
from services.common.settings import LlmSettings
from services.common.telemetry import Telemetry
from services.orchestrator import pipeline
from services.orchestrator.background import Background
from services.orchestrator.endings import Endings
from services.orchestrator.knowledge_client import GrpcKnowledge
from services.orchestrator.memory_client import GrpcMemory
from services.orchestrator.reasoner.loop import Limits, Reasoner
from services.orchestrator.reasoner.openai_model import OpenAiModel
from services.orchestrator.requests import Defaults
from services.orchestrator.runs import Rules, Runs
from services.orchestrator.servicer import OrchestratorServicer
from services.orchestrator.settings import OrchestratorSettings

NAME = "nianlun.orchestrator.v1.OrchestratorService"


class OrchestratorApp:
    """The orchestrator as a process: gRPC server, its worker for background jobs, its channels."""

    def __init__(
        self,
        settings: OrchestratorSettings,
        llm: LlmSettings | None = None,
    ) -> None:
        self._settings = settings
        self._telemetry = Telemetry(settings.chassis, "orchestrator")
        database = settings.database("nianlun-orchestrator")
        self._db = Database(database, schema="orchestrator")
        self._jobs = Jobs(
            self._db,
            "orchestrator",
            database,
            settings.jobs,
            service_key=settings.chassis.service_key,
            metrics=self._telemetry.metrics,
        )
        self._endings = Endings(self._db, self._jobs, settings.compact_after)
        self._telemetry.metrics.watch_pool("orchestrator", self._db.pool_state)
        self._models = _models(self._telemetry, llm or settings.llm, settings.fallback_llm)
        self._log = logs.get(__name__)
        self._readiness = Readiness(
            [("database", self._db.ready)],
            interval_s=settings.chassis.readiness_interval_s,
            timeout_s=settings.chassis.readiness_timeout_s,
        )
        self._stopping = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._channels: list[grpc.aio.Channel] = []
        self._server: GrpcServer | None = None

    @property
    def port(self) -> int:
        """The port served on, known after `start`."""
        return self._server.port if self._server else 0

    @property
    def readiness(self) -> Readiness:
        """What health reports. Memory, retriever and model are no part of it: runs go on without
        them.
        """
        return self._readiness

    async def start(self) -> None:
        """Open the pool and the channels, serve, and work on background jobs."""
        self._telemetry.serve(self._readiness)
        await self._db.open()
        memory_stub = memory_pb2_grpc.MemoryServiceStub(self._channel(self._settings.memory_target))
        retriever_stub = retriever_pb2_grpc.RetrieverServiceStub(
            self._channel(self._settings.retriever_target)
        )
        memory = GrpcMemory(memory_stub)
        limits = Limits(
            rounds=self._settings.max_rounds,
            tool_calls=self._settings.max_tool_calls,
            call_timeout_s=self._settings.model_timeout_s,
        )
        reasoner = Reasoner(self._models, limits)
        steps = pipeline.build(self._settings, memory, GrpcKnowledge(retriever_stub), reasoner)
        rules = Rules(
            timeout_s=self._settings.run_timeout_s,
            lease_s=self._settings.lease_s,
            daily_tokens=self._settings.daily_tokens,
        )
        runs = Runs(self._db, self._endings, steps, rules)
        defaults = Defaults(
            collection_id=self._settings.default_collection,
            top_k=self._settings.top_k,
            redact=self._settings.redact,
            # A token stands for four characters at most.
            history_chars=4 * self._settings.history_tokens,
        )
        servicer = OrchestratorServicer(self._db, self._jobs, runs, memory, memory_stub, defaults)
        Background(
            self._db,
            self._jobs,
            memory,
            reasoner,
            keep_messages=self._settings.keep_messages,
            retention_days=self._settings.retention_days,
            daily_tokens=self._settings.daily_tokens,
        ).register()
        self._server = GrpcServer(
            self._settings,
            [
                (
                    NAME,
                    orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server,
                    servicer,
                )
            ],
            self._readiness,
            KeyVerifier(
                database_lookup(self._db),
                cache_s=self._settings.chassis.auth_cache_s,
                outage_s=self._settings.chassis.auth_outage_s,
            ),
            self._telemetry,
        )
        await self._server.start()
        self._start_worker()

    async def stop(self) -> None:
        """Drain, then close what `start` opened."""
        self._stopping.set()
        if self._server is not None:
            await self._server.stop()
        await self._endings.close()
        if self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)
        for channel in self._channels:
            await channel.close()
        for model in self._models:
            await model.close()
        await self._db.close()
        self._telemetry.close()

    def _channel(self, target: str) -> grpc.aio.Channel:
        chassis = self._settings.chassis
        channel = client.channel(
            target, margin_s=chassis.deadline_margin_s, tls_ca_file=chassis.tls_ca_file
        )
        self._channels.append(channel)
        return channel

    def _start_worker(self) -> None:
        if self._settings.chassis.service_key is None:
            self._log.warning("no_worker", why="NIANLUN_SERVICE_KEY is not set: failed saves wait")
            return
        self._worker = asyncio.create_task(
            self._jobs.run_worker(self._stopping, self._settings.worker_concurrency),
            name="orchestrator-worker",
        )


def build(settings: OrchestratorSettings, llm: LlmSettings | None = None) -> OrchestratorApp:
    """The app; `llm` replaces the model of the settings. Without a model answers are extracts."""
    return OrchestratorApp(settings, llm)


def _models(telemetry: Telemetry, *candidates: LlmSettings) -> list[OpenAiModel]:
    return [OpenAiModel(provider_of(one, telemetry)) for one in candidates if one.configured]
