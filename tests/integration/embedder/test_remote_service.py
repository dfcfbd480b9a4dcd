"""The service over remote providers: several models side by side, outages, constant scores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from nianlun.common.v1 import common_pb2
from nianlun.embedder.v1 import embedder_pb2 as pb
from services.embedder.settings import ModelSettings, RemoteSettings, RerankerSettings
from tests.integration.embedder.conftest import Caller, started
from tests.support.fake_provider import Answer, Provider

DOCUMENTS = ["one", "two two", "three"]


class Remote:
    """A provider whose mood a test sets, and the service in front of it."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.status = 200
        self.constant = False
        self.away: set[str] = set()
        self.caller: Caller
        provider.answer = self.answer

    def answer(self, path: str, payload: dict[str, Any]) -> Answer:
        if self.status != 200 or payload["model"] in self.away:
            return max(self.status, 503), {}, {}
        if path.endswith("/rerank"):
            scores = [0.5 if self.constant else len(text) / 10 for text in payload["documents"]]
            found = [{"index": at, "relevance_score": s} for at, s in enumerate(scores)]
            return 200, {}, {"results": found}
        if any("poison" in text for text in payload["input"]):
            return 400, {}, {}
        rows = [
            {"index": at, "embedding": [1.0, float(len(text))]}
            for at, text in enumerate(payload["input"])
        ]
        return 200, {}, {"data": rows[::-1]}


@pytest_asyncio.fixture
async def remote(models_dir: Path, request: pytest.FixtureRequest) -> AsyncIterator[Remote]:
    """`indirect` parameters are the models that are away at the start, and then for a minute."""
    provider = Provider()
    state = Remote(provider)
    state.away = set(getattr(request, "param", ()))
    address = RemoteSettings(base_url=provider.url, retry_s=0.2)
    app, state.caller = await started(
        models_dir,
        models=(
            ModelSettings(id="first", backend="openai", remote=address),
            ModelSettings(id="second", backend="openai", remote=address, query_prompt="ask: "),
        ),
        rerankers=(RerankerSettings(id="judge", backend="remote", remote=address),),
        cache_mb=0,
    )
    yield state
    await state.caller.channel.close()
    await app.stop()
    provider.stop()


async def listed(remote: Remote) -> dict[str, tuple[int, bool]]:
    """Dimensions and readiness by model."""
    models = (await remote.caller.ListModels(pb.ListModelsRequest())).models
    return {one.id: (one.dimensions, one.ready) for one in models}


async def serving(remote: Remote) -> int:
    """What the health service says now, after a round of checks."""
    await asyncio.sleep(2.5)
    stub = health_pb2_grpc.HealthStub(remote.caller.channel)
    asked = health_pb2.HealthCheckRequest(service="nianlun.embedder.v1.EmbedderService")
    return (await stub.Check(asked)).status


def request(*texts: str, model: str = "") -> pb.EmbedRequest:
    return pb.EmbedRequest(texts=texts, input_type=pb.INPUT_TYPE_QUERY, model=model)


async def test_models_are_served_side_by_side_with_their_own_prompts(remote: Remote) -> None:
    first = await remote.caller.Embed(request("abc"))
    second = await remote.caller.Embed(request("abc", model="second"))
    assert (first.model, second.model) == ("first", "second")
    assert first.revision != second.revision
    ratios = [r.items[0].dense.values[1] / r.items[0].dense.values[0] for r in (first, second)]
    assert ratios == pytest.approx([3.0, 8.0])


async def test_one_refused_text_fails_alone(remote: Remote) -> None:
    response = await remote.caller.Embed(request("a", "poison", "b"))
    found = [item.error.reason for item in response.items]
    assert found == [0, common_pb2.ERROR_REASON_PROVIDER_REFUSED, 0]


@pytest.mark.parametrize("remote", [("second", "judge")], indirect=True)
async def test_providers_that_are_away_keep_the_default_model_from_nothing(remote: Remote) -> None:
    assert await listed(remote) == {"first": (2, True), "second": (0, False), "judge": (0, False)}
    assert await serving(remote) == health_pb2.HealthCheckResponse.SERVING
    assert len((await remote.caller.Embed(request("a"))).items) == 1
    for call in (
        remote.caller.Embed(request("a", model="second")),
        remote.caller.Rerank(pb.RerankRequest(query="q", documents=DOCUMENTS)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    remote.away.clear()
    well = {"first": (2, True), "second": (2, True), "judge": (0, True)}
    for _ in range(200):
        if await listed(remote) == well:
            break
        await asyncio.sleep(0.1)
    assert await listed(remote) == well
    second = await remote.caller.Embed(request("abc", model="second"))
    assert (second.dimensions, len(second.items[0].dense.values)) == (2, 2)
    remote.away.add("first")
    with pytest.raises(grpc.aio.AioRpcError):
        await remote.caller.Embed(request("a"))
    assert await serving(remote) == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_an_outage_is_unavailable_and_ends_by_itself(remote: Remote) -> None:
    remote.status = 503
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await remote.caller.Embed(request("a"))
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert not (await remote.caller.ListModels(pb.ListModelsRequest())).models[0].ready
    remote.status = 200
    for _ in range(100):
        if (await remote.caller.ListModels(pb.ListModelsRequest())).models[0].ready:
            break
        await asyncio.sleep(0.1)
    assert len((await remote.caller.Embed(request("a"))).items) == 1


async def test_e8_constant_scores_make_a_reranker_unhealthy(remote: Remote) -> None:
    good = await remote.caller.Rerank(pb.RerankRequest(query="q", documents=DOCUMENTS))
    assert [result.index for result in good.results] == [1, 2, 0]
    assert not good.degradations
    remote.constant = True
    for _ in range(2):
        bad = await remote.caller.Rerank(pb.RerankRequest(query="q", documents=DOCUMENTS))
    assert bad.degradations[0].kind == common_pb2.DEGRADATION_KIND_MODEL_UNHEALTHY
    judge = (await remote.caller.ListModels(pb.ListModelsRequest())).models[2]
    assert (judge.id, judge.ready) == ("judge", False)
