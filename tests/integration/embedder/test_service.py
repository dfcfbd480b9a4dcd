"""The service with its default model, over gRPC."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from nianlun.common.v1 import common_pb2
from nianlun.embedder.v1 import embedder_pb2 as pb
from tests.integration.embedder.conftest import METADATA, Caller

QUERY, DOCUMENT = pb.INPUT_TYPE_QUERY, pb.INPUT_TYPE_DOCUMENT
LONG = "年轮记忆系统 keeps what was said. " * 30


def request(*texts: str, input_type: Any = DOCUMENT, **fields: Any) -> pb.EmbedRequest:
    return pb.EmbedRequest(texts=texts, input_type=input_type, **fields)


def vectors(response: pb.EmbedResponse) -> np.ndarray:
    return np.array([item.dense.values for item in response.items], dtype=np.float32)


async def violation(call: Any) -> tuple[grpc.StatusCode, str, str]:
    """Code, field and description of a failed call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    status = rpc_status.from_call(caught.value)
    assert status is not None
    bad = error_details_pb2.BadRequest()
    for detail in status.details:
        if detail.Is(bad.DESCRIPTOR):
            detail.Unpack(bad)
    first = bad.field_violations[0]
    return caught.value.code(), first.field, first.description


async def test_e1_a_vector_does_not_depend_on_its_neighbours(embedder: Caller) -> None:
    alone = vectors(await embedder.Embed(request("短文本 E1")))[0]
    embedder.app.catalogue.models[0].model.prepare(["warm"], "query", 512)  # type: ignore[arg-type]
    crowd = [f"{n} {LONG}" for n in range(15)]
    together = vectors(await embedder.Embed(request("短文本 E1 ", *crowd)))[0]
    assert float(alone @ together) >= 0.9999
    assert float(np.linalg.norm(alone)) == pytest.approx(1.0, abs=1e-5)


async def test_e2_bad_items_fail_alone_and_order_and_length_are_kept(embedder: Caller) -> None:
    texts = ["a", "", "b", "   ", "。", "中", "😀", "\u200b", "x\x00y", "Hello \ufffd"]
    response = await embedder.Embed(request(*texts))
    assert len(response.items) == len(texts)
    empty = common_pb2.ERROR_REASON_EMPTY_TEXT
    found = [item.error.reason == empty for item in response.items]
    assert found == [text.strip() == "" for text in texts]
    assert response.items[8].sanitized == ["nul_removed"]
    alone = vectors(await embedder.Embed(request("b")))[0]
    np.testing.assert_allclose(response.items[2].dense.values, alone, atol=1e-5)


async def test_e4_a_very_long_text_is_cut_and_flagged_or_refused(embedder: Caller) -> None:
    text = "很长的文字" * 40_000
    cut = await embedder.Embed(request(text, max_tokens=64), timeout=20)
    refused = await embedder.Embed(
        request(text, "short", max_tokens=64, truncate=pb.TRUNCATE_POLICY_NONE), timeout=20
    )
    assert (cut.items[0].truncated, cut.items[0].token_count) == (True, 64)
    assert refused.items[0].error.reason == common_pb2.ERROR_REASON_TEXT_TOO_LONG
    assert len(refused.items[1].dense.values) == 384


@pytest.mark.slow
async def test_e5_concurrent_callers_get_what_serial_ones_get(embedder: Caller) -> None:
    calls = [[f"caller {c} text {n} {'x ' * (n % 7)}" for n in range(25)] for c in range(32)]
    together = await asyncio.gather(*[embedder.Embed(request(*texts)) for texts in calls])
    for texts, response in list(zip(calls, together, strict=True))[::16]:
        serial = vectors(await embedder.Embed(request(*[text + " " for text in texts])))
        assert float((vectors(response) * serial).sum(axis=1).min()) >= 0.9999
    assert not any(item.HasField("error") for response in together for item in response.items)


async def test_e6_too_many_texts_are_refused_with_the_limit(embedder: Caller) -> None:
    code, field, description = await violation(embedder.Embed(request(*["x"] * 4_000)))
    assert (code, field) == (grpc.StatusCode.INVALID_ARGUMENT, "texts")
    assert "1024" in description


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"texts": []}, "texts"),
        ({"input_type": 0}, "input_type"),
        ({"input_type": 9}, "input_type"),
        ({"model": "nobody"}, "model"),
        ({"kinds": [pb.VECTOR_KIND_SPARSE]}, "kinds"),
        ({"kinds": [7]}, "kinds"),
        ({"kinds": [pb.VECTOR_KIND_DENSE] * 2}, "kinds"),
        ({"dimensions": 100}, "dimensions"),
        ({"max_tokens": 100_000}, "max_tokens"),
        ({"truncate": 9}, "truncate"),
        ({"multi_vector_encoding": 9}, "multi_vector_encoding"),
    ],
)
async def test_unusable_requests_name_the_field(
    embedder: Caller, fields: dict[str, Any], field: str
) -> None:
    usable = {"texts": ["x"], "input_type": DOCUMENT}
    code, named, _ = await violation(embedder.Embed(pb.EmbedRequest(**{**usable, **fields})))
    assert (code, named) == (grpc.StatusCode.INVALID_ARGUMENT, field)


async def test_token_vectors_beside_the_dense_one(embedder: Caller) -> None:
    response = await embedder.Embed(
        request("三个词", "word", kinds=[pb.VECTOR_KIND_DENSE, pb.VECTOR_KIND_MULTI_VECTOR])
    )
    for item in response.items:
        many = item.multi_vector
        rows = np.frombuffer(many.values, dtype="<f2").reshape(many.count, many.dimensions)
        assert many.dimensions == 384
        np.testing.assert_allclose(np.linalg.norm(rows.astype("f4"), axis=1), 1.0, atol=1e-2)
        assert len(item.dense.values) == 384


async def test_token_vectors_of_many_long_texts_are_refused_or_sent(embedder: Caller) -> None:
    texts = [f"{n} " + "word " * 600 for n in range(100)]
    kinds = [pb.VECTOR_KIND_MULTI_VECTOR]
    code, named, message = await violation(embedder.Embed(request(*texts, kinds=kinds)))
    assert (code, named) == (grpc.StatusCode.INVALID_ARGUMENT, "texts")
    assert "20480 tokens" in message
    short = [f"{n} word" for n in range(1_000)]
    response = await embedder.Embed(request(*short, kinds=kinds))
    assert all(item.multi_vector.count for item in response.items)


async def test_compressed_token_vectors(embedder: Caller) -> None:
    response = await embedder.Embed(
        request(
            LONG,
            kinds=[pb.VECTOR_KIND_MULTI_VECTOR],
            multi_vector_encoding=pb.MULTI_VECTOR_ENCODING_COMPRESSED,
        )
    )
    many = response.items[0].multi_vector
    listed = (await embedder.ListModels(pb.ListModelsRequest())).models[0]
    assert many.codec == listed.multi_vector_codec
    assert many.count == listed.multi_vector_max_vectors
    # The retriever keeps a quarter of a byte a number.
    assert len(many.values) / 4 <= 4_096


async def test_models_are_listed(embedder: Caller) -> None:
    models = (await embedder.ListModels(pb.ListModelsRequest())).models
    default, reranker = models[0], models[1]
    assert (default.id, default.dimensions, default.default_embedder) == (
        "multilingual-e5-small",
        384,
        True,
    )
    assert default.ready
    assert default.revision
    anchors = default.calibration
    assert anchors.unrelated < anchors.relevant < anchors.exact
    assert reranker.can_rerank
    assert reranker.default_reranker


async def test_reranking_in_both_languages(embedder: Caller) -> None:
    documents = ["今天天气很好，适合散步。", "R6900 服务器最多支持 8TB 内存。", "I like coffee."]
    for query in ("服务器支持多少内存？", "How much memory does the server support?"):
        response = await embedder.Rerank(pb.RerankRequest(query=query, documents=documents))
        assert response.results[0].index == 1
        assert response.completeness == pb.COMPLETENESS_COMPLETE
        assert all(0.0 <= result.score <= 1.0 for result in response.results)
    top = await embedder.Rerank(pb.RerankRequest(query="x", documents=documents, top_n=1))
    assert (len(top.results), top.scored) == (1, 3)


async def test_s19_no_documents_one_document_and_too_little_time(embedder: Caller) -> None:
    none = await embedder.Rerank(pb.RerankRequest(query="x"))
    assert (len(none.results), none.completeness) == (0, pb.COMPLETENESS_COMPLETE)
    one = await embedder.Rerank(pb.RerankRequest(query="x", documents=["y"]))
    assert [result.index for result in one.results] == [0]
    few = await embedder.Rerank(
        pb.RerankRequest(
            query="a late query",
            documents=[f"{n} {LONG}" for n in range(60)],
            budget=pb.RerankBudget(max_time=duration_pb2.Duration(nanos=700_000_000)),
        )
    )
    assert few.completeness == pb.COMPLETENESS_PARTIAL
    assert few.scored < 60
    capped = await embedder.Rerank(
        pb.RerankRequest(query="x", documents=["a", "b", "c"], budget={"max_pairs": 2})
    )
    assert (capped.scored, capped.completeness) == (2, pb.COMPLETENESS_PARTIAL)


async def test_health_answers_quickly_while_the_model_works(embedder: Caller) -> None:
    health = health_pb2_grpc.HealthStub(embedder.channel)
    load = asyncio.gather(
        *[embedder.Embed(request(*[f"{c} {n} {LONG}" for n in range(8)])) for c in range(4)]
    )
    await asyncio.sleep(0.05)
    times = []
    begun = time.monotonic()
    while not load.done():
        began = time.monotonic()
        answer = await health.Check(health_pb2.HealthCheckRequest())
        times.append(time.monotonic() - began)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        await asyncio.sleep(0.02)
    took = time.monotonic() - begun
    await load
    # Were it to wait for the model, one answer would take about as long as all the work.
    assert len(times) > 2
    assert float(np.median(times)) < took / 4


async def test_a_deadline_ends_the_call_and_its_work(embedder: Caller) -> None:
    texts = [f"late {n} {LONG}" for n in range(300)]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await embedder.Embed(request(*texts), timeout=0.5)
    assert caught.value.code() in (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    )
    worker = embedder.app.catalogue.models[0].worker
    for _ in range(300):
        if worker.queued() == (0, 0):
            break
        await asyncio.sleep(0.02)
    assert worker.queued() == (0, 0)


async def test_no_key_no_vectors(embedder: Caller) -> None:
    from nianlun.embedder.v1 import embedder_pb2_grpc

    stub = embedder_pb2_grpc.EmbedderServiceStub(embedder.channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Embed(request("x"))
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert METADATA
