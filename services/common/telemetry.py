"""Traces (OTLP) and metrics (Prometheus). Both cost nothing until an endpoint is configured.

What OpenTelemetry's semantic conventions have a name for bears that name: RPC spans and
`rpc.server.call.duration`, model calls as `gen_ai.*`, the database pool as
`db.client.connection.*`.
In Prometheus a dot is an underscore and the unit a suffix. The rest begins with `nianlun_`.
"""

from __future__ import annotations

from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.common.monitor import MonitorServer, Ready
from services.common.settings import ChassisSettings

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(frozen=True)
class Metrics:
    """The metrics of one process, in a registry of their own."""

    registry: CollectorRegistry
    rpc_seconds: Histogram
    rpcs_in_flight: Gauge
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
