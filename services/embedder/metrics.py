"""Prometheus metrics of the embedder, in the registry of the process."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from services.common.telemetry import Telemetry
from services.embedder.cache import VectorCache
from services.embedder.engine import Work
from services.embedder.scheduler.types import Batch
from services.embedder.worker import DeviceWorker, Observer

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_TOKENS = (16, 64, 256, 1_024, 4_096, 16_384, 65_536)
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)


class EmbedderMetrics(Observer):
    """Hears about every batch; called in the model threads (the client library is thread-safe)."""

    def __init__(self, telemetry: Telemetry, cache: VectorCache) -> None:
        registry = telemetry.metrics.registry
        self._forward = Histogram(
            "nianlun_embedder_forward_seconds",
            "Seconds of a forward pass.",
            ["lane"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._wait = Histogram(
            "nianlun_embedder_queue_seconds",
            "Seconds the oldest text of a batch waited.",
            ["lane", "priority"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._items = Histogram(
            "nianlun_embedder_batch_items",
            "Texts of a batch.",
            ["lane"],
            buckets=_COUNTS,
            registry=registry,
        )
        self._tokens = Histogram(
            "nianlun_embedder_batch_tokens",
            "Tokens of a batch, without padding.",
            ["lane"],
            buckets=_TOKENS,
            registry=registry,
        )
        self._padding = Histogram(
            "nianlun_embedder_padding_share",
            "Share of a batch that is padding.",
            ["lane"],
            buckets=_SHARES,
            registry=registry,
        )
        self._failures = Counter(
            "nianlun_embedder_failed_batches",
            "Batches that failed.",
            ["lane", "kind"],
            registry=registry,
        )
        self._queue = Gauge(
            "nianlun_embedder_queue_tokens",
            "Tokens that wait.",
            ["worker"],
            registry=registry,
        )
        for name, read in (
            ("hits", lambda: cache.hits),
            ("misses", lambda: cache.misses),
            ("bytes", lambda: cache.bytes),
        ):
            gauge = Gauge(f"nianlun_embedder_cache_{name}", f"Cache {name}.", registry=registry)
            gauge.set_function(read)

    def watch_queue(self, worker: DeviceWorker) -> None:
        """Read a worker's queue whenever the metrics are scraped."""
        self._queue.labels(worker.name).set_function(lambda: worker.queued()[0])

    def batch(self, batch: Batch[Work], now: float, seconds: float) -> None:
        """A batch went well."""
        lane = batch.lane
        oldest = min(item.arrival for item in batch.items)
        priority = batch.items[0].priority.name.lower()
        self._forward.labels(lane).observe(seconds)
        self._wait.labels(lane, priority).observe(max(now - oldest, 0.0))
        self._items.labels(lane).observe(len(batch.items))
        self._tokens.labels(lane).observe(batch.tokens)
        self._padding.labels(lane).observe(1.0 - batch.tokens / batch.padded_tokens)

    def failure(self, lane: str, kind: str) -> None:
        """A batch failed."""
        self._failures.labels(lane, kind).inc()
