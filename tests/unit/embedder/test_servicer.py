"""The servicer over a scripted model: shorter vectors, spans, metrics, warm-up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nianlun.embedder.v1 import embedder_pb2
from services.common.errors import DomainError
from services.common.settings import ChassisSettings
from services.common.telemetry import Telemetry
from services.embedder.cache import VectorCache
from services.embedder.catalogue import Catalogue, ServedModel
from services.embedder.engine import Work
from services.embedder.metrics import EmbedderMetrics
from services.embedder.model import Prepared
from services.embedder.scheduler.types import Batch, Item, Limits, Priority
from services.embedder.servicer import EmbedderServicer, RerankLimits
from services.embedder.warmup import shapes, warm_up
from tests.unit.embedder.conftest import DIMENSIONS, Bench, ScriptedModel, vector


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def servicer(bench: Bench, spans: InMemorySpanExporter) -> EmbedderServicer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    catalogue = Catalogue([ServedModel(bench.model, bench.worker)], [])
    tracer = provider.get_tracer("test")
    return EmbedderServicer(catalogue, bench.front, RerankLimits(10, 1.0), tracer)


async def embed(servicer: EmbedderServicer, **fields: Any) -> embedder_pb2.EmbedResponse:
    request = embedder_pb2.EmbedRequest(input_type=embedder_pb2.INPUT_TYPE_QUERY, **fields)
    return await servicer.Embed(request, None)  # type: ignore[arg-type]


async def test_shorter_vectors_are_the_heads_of_the_whole_ones(servicer: EmbedderServicer) -> None:
    response = await embed(servicer, texts=["one", "two"], dimensions=4)
    assert response.dimensions == 4
    for item, text in zip(response.items, ("one", "two"), strict=True):
        head = vector(text)[:4]
        expected = head / np.linalg.norm(head)
        np.testing.assert_allclose(item.dense.values, expected, rtol=1e-5)
    with pytest.raises(DomainError, match="dimensions"):
        await embed(servicer, texts=["one"], dimensions=5)


_TOKENS = [embedder_pb2.VECTOR_KIND_MULTI_VECTOR]
_BOTH = [*_TOKENS, embedder_pb2.VECTOR_KIND_DENSE]


@pytest.mark.parametrize(("kinds", "room"), [(_TOKENS, 64), (_BOTH, 60)])
async def test_an_answer_that_could_not_be_sent_is_refused_before_the_work(
    servicer: EmbedderServicer,
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    kinds: list[embedder_pb2.VectorKind.ValueType],
    room: int,
) -> None:
    # A token takes 2 bytes a dimension, a dense vector 4: two texts of 8 dimensions take 64.
    monkeypatch.setattr("services.embedder.servicer._MAX_RESPONSE_BYTES", 64 * 2 * DIMENSIONS)
    with pytest.raises(DomainError, match="texts") as caught:
        await embed(servicer, texts=["a" * room, "b"], kinds=kinds)
    assert f"at most {room} tokens together" in str(caught.value.violations)
    assert bench.model.batches == []
    most = await embed(servicer, texts=["a" * (room - 1), "b"], kinds=kinds)
    assert [item.multi_vector.count for item in most.items] == [room - 1, 1]
    assert sum(len(item.multi_vector.values) for item in most.items) == room * 2 * DIMENSIONS
    worked = len(bench.model.batches)
    with pytest.raises(DomainError, match="texts"):
        await embed(servicer, texts=["a" * (room - 1), "b"] * 2, kinds=kinds)
    assert len(bench.model.batches) == worked, "all of it came from the cache"


async def test_each_call_leaves_a_queue_and_a_forward_span(
    servicer: EmbedderServicer, spans: InMemorySpanExporter
) -> None:
    response = await embed(servicer, texts=["slow"])
    queue, forward = spans.get_finished_spans()
    assert (queue.name, forward.name) == ("embedder.queue", "embedder.forward")
    assert queue.end_time == forward.start_time
    assert forward.end_time is not None
    assert forward.start_time is not None
    # The scripted model sleeps for 0.2 s.
    assert forward.end_time - forward.start_time >= 190_000_000
    told = {timing.step: timing.ms for timing in response.timings}
    assert told["forward"] >= 190


def test_metrics_of_a_batch() -> None:
    telemetry = Telemetry(ChassisSettings(), "embedder")
    cache = VectorCache(1_000)
    metrics = EmbedderMetrics(telemetry, cache)
    items = tuple(
        Item("embed:m", tokens, Priority.QUERY, 10.0, Work(Prepared("t", (), tokens)))
        for tokens in (6, 10)
    )
    metrics.batch(Batch("embed:m", items), 10.5, 0.02)
    metrics.failure("embed:m", "out_of_memory")

    def value(name: str, **labels: str) -> float | None:
        return telemetry.metrics.registry.get_sample_value(f"nianlun_embedder_{name}", labels)

    assert value("batch_items_sum", lane="embed:m") == 2
    assert value("batch_tokens_sum", lane="embed:m") == 16
    assert value("padding_share_sum", lane="embed:m") == pytest.approx(0.2)
    assert value("forward_seconds_sum", lane="embed:m") == pytest.approx(0.02)
    assert value("queue_seconds_sum", lane="embed:m", priority="query") == pytest.approx(0.5)
    assert value("failed_batches_total", lane="embed:m", kind="out_of_memory") == 1
    assert value("cache_misses") == 0


def test_a_gpu_sees_every_batch_shape_before_the_first_call() -> None:
    limits = Limits(batch_tokens=1_024, batch_items=32)
    model = ScriptedModel()
    assert warm_up(model, limits) == 0
    model.info = replace(model.info, device="cuda:0")
    assert warm_up(model, limits) == len(shapes(512, limits)) == len(model.batches)
    seen = {(len(batch), len(batch[0])) for batch in model.batches}
    assert (32, 16) in seen
    assert (2, 512) in seen
    # A shape that does not fit ends the warm-up, and is no reason not to start.
    model.room = 100
    assert 0 < warm_up(model, limits) < len(shapes(512, limits))
    assert model.info.dimensions == DIMENSIONS
