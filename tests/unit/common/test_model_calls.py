"""Model calls as OpenTelemetry's conventions for generative AI want them."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv._incubating.metrics import db_metrics, gen_ai_metrics, rpc_metrics
from opentelemetry.trace import SpanKind, StatusCode

from services.common.errors import DomainError, dependency_unavailable
from services.common.llm import ChatClient, provider_of
from services.common.llm.observe import model_call
from services.common.settings import ChassisSettings, LlmSettings
from services.common.telemetry import Metrics, PoolState, Telemetry
from services.orchestrator.reasoner.model import Done, ModelMessage, ModelRequest
from services.orchestrator.reasoner.openai_model import OpenAiModel
from tests.support.fake_llm import FakeLlm, rate_limited, text

LABELS = {
    "gen_ai_operation_name": "chat",
    "gen_ai_provider_name": "openai",
    "gen_ai_request_model": "m",
}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def telemetry(exporter: InMemorySpanExporter) -> Telemetry:
    return Telemetry(ChassisSettings(), "test", SimpleSpanProcessor(exporter))


def _sample(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.metrics.registry.get_sample_value(name, {**LABELS, **labels})


def test_a_call_that_went_well(telemetry: Telemetry, exporter: InMemorySpanExporter) -> None:
    with model_call(telemetry, "m") as seen:
        seen.prompt_tokens, seen.completion_tokens = 120, 7
    [span] = exporter.get_finished_spans()
    assert (span.name, span.kind) == ("chat m", SpanKind.CLIENT)
    assert span.attributes == {
        gen_ai.GEN_AI_OPERATION_NAME: gen_ai.GenAiOperationNameValues.CHAT.value,
        gen_ai.GEN_AI_PROVIDER_NAME: gen_ai.GenAiProviderNameValues.OPENAI.value,
        gen_ai.GEN_AI_REQUEST_MODEL: "m",
        gen_ai.GEN_AI_USAGE_INPUT_TOKENS: 120,
        gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS: 7,
    }
    assert _sample(telemetry, "gen_ai_client_operation_duration_seconds_count", error_type="") == 1
    usage = "gen_ai_client_token_usage_sum"
    assert _sample(telemetry, usage, gen_ai_token_type="input") == 120
    assert _sample(telemetry, usage, gen_ai_token_type="output") == 7


def test_a_call_that_failed(telemetry: Telemetry, exporter: InMemorySpanExporter) -> None:
    with pytest.raises(DomainError), model_call(telemetry, "m"):
        raise dependency_unavailable("llm", retry_after_s=1.0, detail="secret of the provider")
    [span] = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "DEPENDENCY_UNAVAILABLE"
    assert "secret" not in span.to_json()
    name = "gen_ai_client_operation_duration_seconds_count"
    assert _sample(telemetry, name, error_type="DEPENDENCY_UNAVAILABLE") == 1


async def test_a_stream_that_is_left_early_is_no_error(
    telemetry: Telemetry, exporter: InMemorySpanExporter
) -> None:
    async def stream() -> AsyncGenerator[int, None]:
        with model_call(telemetry, "m") as seen:
            seen.completion_tokens = 2
            yield 1
            yield 2

    answer = stream()
    assert await anext(answer) == 1
    await answer.aclose()
    [span] = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes[gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS] == 2


async def test_whole_answers_and_streams_are_observed(
    telemetry: Telemetry, exporter: InMemorySpanExporter, fake_llm: FakeLlm
) -> None:
    settings = LlmSettings(base_url=fake_llm.base_url, api_key="k", model="m")
    client = ChatClient(settings, telemetry)
    model = OpenAiModel(provider_of(settings, telemetry))
    asked = ModelRequest((ModelMessage("user", "good"),))
    fake_llm.on("good", text("yes"))
    fake_llm.on("busy", rate_limited(0.1))
    try:
        whole = await client.complete([{"role": "user", "content": "good"}])
        pieces = [piece async for piece in model.stream(asked, 5.0)]
        with pytest.raises(DomainError):
            await client.complete([{"role": "user", "content": "busy"}])
    finally:
        await client.aclose()
        await model.close()
    assert isinstance(pieces[-1], Done)
    first, second, third = exporter.get_finished_spans()
    for span in (first, second):
        assert span.attributes[gen_ai.GEN_AI_USAGE_INPUT_TOKENS] == whole.prompt_tokens
    assert third.attributes["error.type"] == "DEPENDENCY_UNAVAILABLE"


def test_names_in_prometheus_are_those_of_the_conventions() -> None:
    metrics = Metrics.create()
    metrics.watch_pool("p", lambda: PoolState(idle=3, used=2, most=8, waiting=1))
    names = {metric.name for metric in metrics.registry.collect()}
    for convention, unit in (
        (rpc_metrics.RPC_SERVER_CALL_DURATION, "_seconds"),
        (gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION, "_seconds"),
        (gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE, ""),
        (db_metrics.DB_CLIENT_CONNECTION_COUNT, ""),
        (db_metrics.DB_CLIENT_CONNECTION_MAX, ""),
        (db_metrics.DB_CLIENT_CONNECTION_PENDING_REQUESTS, ""),
    ):
        assert convention.replace(".", "_") + unit in names
    pool = {"db_client_connection_pool_name": "p"}
    assert metrics.registry.get_sample_value("db_client_connection_max", pool) == 8
    used = {**pool, "db_client_connection_state": "used"}
    assert metrics.registry.get_sample_value("db_client_connection_count", used) == 2
