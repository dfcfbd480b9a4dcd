"""What the gateway tells of its requests: metrics by route, spans that go on in the services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
import openai
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from services.common.settings import ChassisSettings
from services.common.telemetry import Telemetry
from services.local.environment import free_ports
from tests.support.db import Tenant
from tests.support.gateway import serving
from tests.support.stack import Stack

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@dataclass(frozen=True)
class Watched:
    """A gateway whose spans and metrics are seen."""

    url: str
    telemetry: Telemetry
    exporter: InMemorySpanExporter

    def count(self, method: str, route: str, status: str) -> float | None:
        return self.telemetry.metrics.registry.get_sample_value(
            "http_server_request_duration_seconds_count",
            {
                "http_request_method": method,
                "http_route": route,
                "http_response_status_code": status,
            },
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())


@asynccontextmanager
async def _watched(stack: Stack, **settings: Any) -> AsyncIterator[Watched]:
    exporter = InMemorySpanExporter()
    telemetry = Telemetry(ChassisSettings(), "gateway", SimpleSpanProcessor(exporter))
    async with serving(stack, telemetry, **settings) as url:
        yield Watched(url, telemetry, exporter)


@pytest.fixture
async def watched(stack: Stack) -> AsyncIterator[Watched]:
    async with _watched(stack) as found:
        yield found


async def test_requests_are_counted_by_their_route_and_status(
    watched: Watched, tenant: Tenant
) -> None:
    key = {"authorization": f"Bearer {tenant.key}"}
    async with httpx.AsyncClient(base_url=watched.url, headers=key, timeout=30) as http:
        for path in ("/v1/models/nobody", "/v1/models/a/b"):
            assert (await http.get(path)).status_code == 404
        assert (await http.post("/api/memory/ListUsers", json={})).status_code == 200
        assert (await http.post("/v1/embeddings", json={})).status_code == 400
        assert (await http.get("/v1/embeddings")).status_code == 405
        assert (await http.get("/console/js/main.js")).status_code == 200
        assert (await http.get("/wp-login.php")).status_code == 404
        assert (await http.request("BREW", "/pot")).status_code == 404
        await http.get("/healthz")
        hello = {"model": "nianlun", "messages": [{"role": "user", "content": "你好"}]}
        refused = await http.post("/v1/chat/completions", json=hello, headers={"authorization": ""})
        assert refused.status_code == 401
    assert watched.count("GET", "/v1/models/{model}", "404") == 2
    assert watched.count("POST", "/api/{service}/{method}", "200") == 1
    assert watched.count("POST", "/v1/embeddings", "400") == 1
    assert watched.count("GET", "/v1/embeddings", "405") == 1
    assert watched.count("GET", "/console/{path}", "200") == 1
    # What nobody serves is one series, however many paths and methods are tried.
    assert watched.count("GET", "", "404") == 1
    assert watched.count("_OTHER", "", "404") == 1
    assert watched.count("POST", "/v1/chat/completions", "401") == 1
    assert watched.count("GET", "/healthz", "200") == 1
    active = watched.telemetry.metrics.registry.get_sample_value(
        "http_server_active_requests", {"http_request_method": "POST"}
    )
    assert active == 0


async def test_a_streamed_chat_is_one_request_that_lasts_to_its_end(
    stack: Stack, tenant: Tenant
) -> None:
    async with (
        _watched(stack) as watched,
        openai.AsyncOpenAI(base_url=f"{watched.url}/v1", api_key=tenant.key) as client,
    ):
        stream = await client.chat.completions.create(
            model="nianlun", messages=[{"role": "user", "content": "你好"}], stream=True
        )
        assert watched.count("POST", "/v1/chat/completions", "200") is None
        assert [chunk async for chunk in stream]
    assert watched.count("POST", "/v1/chat/completions", "200") == 1


async def test_a_span_continues_the_callers_trace_and_holds_no_content(
    watched: Watched, tenant: Tenant
) -> None:
    async with httpx.AsyncClient(base_url=watched.url, timeout=30) as http:
        await http.get("/healthz")
        await http.post(
            "/api/memory/ListUsers?secret=1",
            json={},
            headers={
                "authorization": f"Bearer {tenant.key}",
                "traceparent": PARENT,
                "x-request-id": "req-7",
            },
        )
    [span] = watched.spans  # none of the probe
    assert span.name == "POST /api/{service}/{method}"
    assert span.kind is SpanKind.SERVER
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/api/{service}/{method}",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "url.path": "/api/memory/ListUsers",
        "nianlun.request_id": "req-7",
    }


class _Memory(grpc.GenericRpcHandler):
    """A memory service that knows nothing but the metadata it was called with."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        self.seen.append(dict(details.invocation_metadata or ()))

        async def answer(_request: bytes, context: Any) -> bytes:
            await context.abort(grpc.StatusCode.INTERNAL, "broken")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


async def test_the_services_go_on_with_the_trace_and_their_faults_are_errors(
    stack: Stack, tenant: Tenant
) -> None:
    memory = _Memory()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((memory,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with (
            _watched(stack, memory_target=f"127.0.0.1:{port}") as watched,
            httpx.AsyncClient(base_url=watched.url, timeout=30) as http,
        ):
            failed = await http.post(
                "/api/memory/ListUsers",
                json={},
                headers={"authorization": f"Bearer {tenant.key}", "traceparent": PARENT},
            )
            assert failed.status_code == 500
            [span] = watched.spans
    finally:
        await server.stop(None)
    [metadata] = memory.seen
    assert span.context is not None
    assert metadata["traceparent"] == f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "500"


async def test_the_monitoring_port_is_that_of_every_process(stack: Stack) -> None:
    (port,) = free_ports(1)
    chassis = ChassisSettings(grace_s=1.0, drain_s=0.0, metrics_port=port)
    monitor = f"http://127.0.0.1:{port}"
    async with serving(stack, chassis=chassis) as url, httpx.AsyncClient(timeout=10) as http:
        await http.get(f"{url}/v1/models")
        metrics = (await http.get(f"{monitor}/metrics")).text
        assert (
            'http_server_request_duration_seconds_count{http_request_method="GET",'
            'http_response_status_code="401",http_route="/v1/models"} 1.0' in metrics
        )
        assert (await http.get(f"{monitor}/healthz")).status_code == 200
        targets = {"orchestrator_target": "127.0.0.1:9"}
        (other,) = free_ports(1)
        alone = ChassisSettings(grace_s=1.0, drain_s=0.0, metrics_port=other)
        async with serving(stack, chassis=alone, **targets):
            down = await http.get(f"http://127.0.0.1:{other}/healthz")
            assert (down.status_code, down.text) == (503, "orchestrator: unreachable\n")
    with pytest.raises(httpx.ConnectError):
        async with httpx.AsyncClient() as http:
            await http.get(f"{monitor}/metrics")
