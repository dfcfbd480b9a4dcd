"""Traces (OTLP) and metrics (Prometheus). Both cost nothing until an endpoint is configured.

What OpenTelemetry's semantic conventions have a name for bears that name: RPC spans and
`rpc.server.call.duration`, model calls as `gen_ai.*`, the database pool as
`db.client.connection.*`. In Prometheus a dot is an underscore and the unit a suffix. The rest
begins with `nianlun_`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.common.monitor import MonitorServer, Ready
from services.common.settings import ChassisSettings

_MODEL_LABELS = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
_MODEL_BUCKETS = tuple(0.01 * 2**power for power in range(14))
_TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
"""Both as OpenTelemetry's conventions advise."""
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(frozen=True)
class PoolState:
    """Connections of one pool, and how many tasks wait for one."""

    idle: int
    used: int
    most: int
    waiting: int


@dataclass(frozen=True)
class Metrics:
    """The metrics of one process, in a registry of their own."""

    registry: CollectorRegistry
    rpc_seconds: Histogram
    rpcs_in_flight: Gauge
    model_seconds: Histogram
    model_tokens: Histogram
    jobs: Counter
    job_seconds: Histogram
    degradations: Counter

    @classmethod
    def create(cls) -> Metrics:
        """Fresh metrics; two servers in one test process do not collide."""
        registry = CollectorRegistry()
        return cls(
            registry=registry,
            rpc_seconds=Histogram(
                "rpc_server_call_duration_seconds",
                "Wall time of RPCs; its count is that of finished RPCs.",
                ["rpc_system_name", "rpc_method", "rpc_response_status_code"],
                buckets=_BUCKETS,
                registry=registry,
            ),
            rpcs_in_flight=Gauge("nianlun_rpcs_in_flight", "RPCs being served.", registry=registry),
            model_seconds=Histogram(
                "gen_ai_client_operation_duration_seconds",
                "Wall time of calls of a language model; error_type is empty where they went well.",
                [*_MODEL_LABELS, "error_type"],
                buckets=_MODEL_BUCKETS,
                registry=registry,
            ),
            model_tokens=Histogram(
                "gen_ai_client_token_usage",
                "Tokens of a model call, as the provider counts them.",
                [*_MODEL_LABELS, "gen_ai_token_type"],
                buckets=_TOKEN_BUCKETS,
                registry=registry,
            ),
            jobs=Counter(
                "nianlun_job_attempts",
                "Attempts of jobs by outcome.",
                ["kind", "outcome"],
                registry=registry,
            ),
            job_seconds=Histogram(
                "nianlun_job_seconds",
                "Wall time of job attempts.",
                ["kind"],
                buckets=_BUCKETS,
                registry=registry,
            ),
            degradations=Counter(
                "nianlun_degradations", "Answers that lack something.", ["kind"], registry=registry
            ),
        )

    def watch_pool(self, name: str, read: Callable[[], PoolState]) -> None:
        """Report a pool of database connections whenever the metrics are scraped."""
        prefix, labels = "db_client_connection", ["db_client_connection_pool_name"]
        count = Gauge(
            f"{prefix}_count",
            "Database connections by state.",
            [*labels, "db_client_connection_state"],
            registry=self.registry,
        )
        count.labels(name, "idle").set_function(lambda: read().idle)
        count.labels(name, "used").set_function(lambda: read().used)
        most = Gauge(f"{prefix}_max", "Most connections.", labels, registry=self.registry)
        most.labels(name).set_function(lambda: read().most)
        waiting = Gauge(
            f"{prefix}_pending_requests", "Who waits for one.", labels, registry=self.registry
        )
        waiting.labels(name).set_function(lambda: read().waiting)


class Telemetry:
    """The tracer and the metrics of one process; ``close`` flushes what is pending."""

    def __init__(
        self, settings: ChassisSettings, service: str, processor: SpanProcessor | None = None
    ) -> None:
        self.metrics = Metrics.create()
        self._settings = settings
        self._provider: TracerProvider | None = None
        self._monitor: MonitorServer | None = None
        if processor is None and settings.otlp_endpoint:
            # Imported here: the exporter drags in a second gRPC stack that most runs never need.
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.otlp_endpoint))
        if processor is not None:
            self._provider = TracerProvider(
                resource=Resource.create({"service.name": f"nianlun-{service}"})
            )
            self._provider.add_span_processor(processor)
        self.tracer: trace.Tracer = (
            self._provider.get_tracer("nianlun") if self._provider else trace.NoOpTracer()
        )

    def serve(self, readiness: Ready) -> int | None:
        """Open the monitoring port where one is configured: metrics, and readiness as HTTP.

        Returns the port. Raises StartupError when it is taken.
        """
        if self._settings.metrics_port is None or self._monitor is not None:
            return None
        self._monitor = MonitorServer(
            self._settings.metrics_host,
            self._settings.metrics_port,
            self.metrics.registry,
            readiness,
        )
        return self._monitor.port

    def close(self) -> None:
        """Flush spans, stop exporting, give the port back."""
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        if self._provider is not None:
            self._provider.shutdown()
