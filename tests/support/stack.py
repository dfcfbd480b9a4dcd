"""All services in this process, from the same composition roots as in production.

Real sockets on free ports, real PostgreSQL, the default embedding model; workers run as tasks.
Tests share one stack and keep apart by tenant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import grpc
from pydantic import SecretStr

from nianlun.embedder.v1 import embedder_pb2_grpc
from nianlun.memory.v1 import memory_pb2_grpc
from nianlun.orchestrator.v1 import orchestrator_pb2_grpc
from nianlun.retriever.v1 import retriever_pb2_grpc
from services.common.settings import ChassisSettings, JobSettings, LlmSettings
from tests.support import keys
from tests.support.db import SERVICES, Database, Tenant
from tests.support.fake_llm import FakeLlm

AUTH_CACHE_S = 1.0
_OPTIONS = (
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # One TCP connection per channel object, not one shared by all channels of the process.
    ("grpc.use_local_subchannel_pool", 1),
)
_STUBS = {
    "embedder": embedder_pb2_grpc.EmbedderServiceStub,
    "retriever": retriever_pb2_grpc.RetrieverServiceStub,
    "memory": memory_pb2_grpc.MemoryServiceStub,
    "orchestrator": orchestrator_pb2_grpc.OrchestratorServiceStub,
}


class App(Protocol):
    """What a composition root returns."""

    @property
    def port(self) -> int: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Bound:
    """A stub whose every call carries one tenant's key."""

    def __init__(self, stub: Any, tenant: Tenant) -> None:
        self._stub = stub
        self._metadata = tenant.metadata

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(self._stub, name), metadata=self._metadata)


class Client:
    """The four services as one tenant sees them: `client.memory.AppendTurn(request)`."""

    def __init__(self, stack: Stack, tenant: Tenant) -> None:
        self.tenant = tenant
        self._stack = stack

    @property
    def embedder(self) -> Any:
        return Bound(self._stack.stub("embedder"), self.tenant)

    @property
    def retriever(self) -> Any:
        return Bound(self._stack.stub("retriever"), self.tenant)

    @property
    def memory(self) -> Any:
        return Bound(self._stack.stub("memory"), self.tenant)

    @property
    def orchestrator(self) -> Any:
        return Bound(self._stack.stub("orchestrator"), self.tenant)


class Stack:
    """Services and workers over one database. With `llm` they use that model, else none.

    Stacks that differ in what their workers can do need databases of their own: over one, each
    takes the other's jobs.

    `chassis` and `overrides` (by service) are settings; `targets` are addresses of services that
    run elsewhere, to be left out of `services`.
    """

    def __init__(
        self,
        database: Database,
        *,
        llm: FakeLlm | None = None,
        chassis: dict[str, Any] | None = None,
        overrides: dict[str, dict[str, Any]] | None = None,
        workers: bool = True,
        services: Sequence[str] = SERVICES,
        targets: dict[str, str] | None = None,
    ) -> None:
        self.database = database
        self.apps: dict[str, App] = {}
        self._llm = llm
        self._chassis = chassis or {}
        self._overrides = overrides or {}
        self._with_workers = workers
        self._services = services
        self._targets = targets or {}
        self._workers: list[App] = []
        self._channels: dict[str, grpc.aio.Channel] = {}

    def target(self, service: str) -> str:
        """host:port of a running service."""
        if service in self._targets:
            return self._targets[service]
        return f"127.0.0.1:{self.apps[service].port}"

    def channel(self, service: str) -> grpc.aio.Channel:
        """A plain channel without any credential or retry."""
        if service not in self._channels:
            self._channels[service] = grpc.aio.insecure_channel(self.target(service), _OPTIONS)
        return self._channels[service]

    def stub(self, service: str) -> Any:
        """The generated stub on that channel."""
        return _STUBS[service](self.channel(service))

    def client(self, tenant: Tenant | None = None) -> Client:
        """The services as seen by a tenant; by a new one where none is given."""
        return Client(self, tenant or self.database.tenant())

    async def start(self) -> None:
        """Start everything in order of dependence."""
        for service in self._services:
            self.apps[service] = await self._started(self._build(service))
        if self._with_workers:
            for service in ("retriever", "memory"):
                self._workers.append(await self._started(self._build_worker(service)))

    async def stop(self) -> None:
        """Stop everything, workers first."""
        for channel in self._channels.values():
            await channel.close()
        for app in [*reversed(self._workers), *reversed(self.apps.values())]:
            await asyncio.wait_for(app.stop(), 30)
        self._channels.clear()
        self._workers.clear()
        self.apps.clear()

    async def _started(self, app: App) -> App:
        await app.start()
        return app

    def _common(self) -> dict[str, Any]:
        service_key = keys.create(self.database.owner_dsn, "nianlun:service", scopes=("service",))
        options: dict[str, Any] = {
            "auth_cache_s": AUTH_CACHE_S,
            "drain_s": 0.0,
            "grace_s": 3.0,
            "readiness_interval_s": 0.2,
        } | self._chassis
        return {"chassis": ChassisSettings(service_key=SecretStr(service_key), **options)}

    def _settings(self, service: str, cls: Any) -> Any:
        values: dict[str, Any] = {
            "listen": "127.0.0.1:0",
            "database_dsn": SecretStr(self.database.role_dsn(service)),
            **self._common(),
        }
        for other in ("embedder", "retriever", "memory"):
            running = other in self.apps or other in self._targets
            if running and f"{other}_target" in cls.model_fields:
                values[f"{other}_target"] = self.target(other)
        if "llm" in cls.model_fields:
            values["llm"] = self._llm_settings()
        if "jobs" in cls.model_fields:
            values["jobs"] = JobSettings(poll_s=0.2, backoff_base_s=0.1, watch_poll_s=0.1)
        values |= self._overrides.get(service, {})
        return cls(**values)

    def _llm_settings(self) -> LlmSettings:
        if self._llm is None:
            return LlmSettings(base_url=None, api_key=None, model=None)
        return LlmSettings(
            base_url=self._llm.base_url,
            api_key=SecretStr(self._llm.api_key),
            model=self._llm.model,
            timeout_s=10,
        )

    def _build(self, service: str) -> App:
        if service == "embedder":
            from services.embedder import app as embedder
            from services.embedder.settings import EmbedderSettings

            return embedder.build(self._settings(service, EmbedderSettings))
        if service == "retriever":
            from services.retriever import app as retriever
            from services.retriever.settings import RetrieverSettings

            return retriever.build(self._settings(service, RetrieverSettings))
        if service == "memory":
            from services.memory import app as memory
            from services.memory.settings import MemorySettings

            return memory.build(self._settings(service, MemorySettings))
        from services.orchestrator import app as orchestrator
        from services.orchestrator.settings import OrchestratorSettings

        settings = self._settings(service, OrchestratorSettings)
        return orchestrator.build(settings, llm=self._llm_settings())

    def _build_worker(self, service: str) -> App:
        if service == "retriever":
            from services.retriever import app as retriever
            from services.retriever.settings import RetrieverSettings

            return retriever.build_worker(self._settings(service, RetrieverSettings))
        from services.memory import app as memory
        from services.memory.settings import MemorySettings

        return memory.build_worker(self._settings(service, MemorySettings))
