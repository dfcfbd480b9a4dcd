"""Postings under writes, the HNSW index, re-embedding: what only shows with data."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import grpc
import psycopg
import pytest
from pydantic import SecretStr

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from services.common.db import Database as Pool
from services.common.settings import DatabaseSettings
from services.retriever import promotion
from services.retriever.domain import Space
from services.retriever.store import dense
from services.search import query_terms, tokenize
from services.search.bm25 import reference_scores
from tests.integration.retriever.conftest import Shelf, rid
from tests.integration.retriever.embedder_double import EmbedderDouble, vector
from tests.support import calls
from tests.support.db import Database

WORDS = [f"word{n}" for n in range(120)] + ["服务器", "内存", "配置", "模型", "检索"]
LEXICAL = [
    pb.LegSetting(leg=pb.LEG_DENSE, weight=0.0),
    pb.LegSetting(leg=pb.LEG_PHRASE, weight=0.0),
]
PLAIN: dict[str, Any] = {"rerank": pb.RerankOptions(kind=pb.RERANK_KIND_OFF)}


def _text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(3, 25)))


async def _lexical_scores(shelf: Shelf, query: str) -> dict[str, float]:
    response = await shelf.search(query, legs=LEXICAL, top_k=1000, **PLAIN)
    return {
        h.document_id: leg.score
        for h in response.hits
        for leg in h.explanation.legs
        if leg.leg == pb.LEG_LEXICAL
    }


def _reference(live: dict[str, str], query: str) -> dict[str, float]:
    # Equal texts are one item.
    texts = dict.fromkeys(live.values())
    scores = reference_scores([tokenize(t) for t in texts], query_terms(query))
    by_text = dict(zip(texts, scores, strict=True))
    return {i: by_text[t] for i, t in live.items() if by_text[t] > 0}


async def test_postings_equal_the_reference_while_documents_come_and_go(shelf: Shelf) -> None:
    rng = random.Random(7)
    await shelf.create()
    live: dict[str, str] = {}
    for step in range(14):
        fresh = {f"d{step}-{n}": _text(rng) for n in range(12)}
        await shelf.put(fresh)
        live.update(fresh)
        gone = rng.sample(sorted(live), 4)
        await shelf.stub.DeleteDocuments(
            pb.DeleteDocumentsRequest(request_id=rid(), collection_id="docs", document_ids=gone)
        )
        for document in gone:
            del live[document]
        query = " ".join(rng.choices(WORDS, k=4))
        wanted, found = _reference(live, query), await _lexical_scores(shelf, query)
        # A text that stands twice is one hit, shown under one of its documents.
        assert set(found) <= set(wanted)
        assert {live[i] for i in found} == {live[i] for i in wanted}
        for document, score in found.items():
            assert score == pytest.approx(wanted[document], abs=1e-6)
    merges = [
        j
        for j in (await shelf.stub.ListJobs(pb.ListJobsRequest())).jobs
        if j.kind == "merge_postings"
    ]
    assert merges
    await shelf.wait(merges[0])
    query = "word1 word2 服务器内存"
    assert await _lexical_scores(shelf, query) == pytest.approx(_reference(live, query), abs=1e-6)


async def test_s05_a_small_scope_among_many_rows(shelf: Shelf, database: Database) -> None:
    await shelf.create("big")
    await shelf.create("small")
    rng = random.Random(1)
    for part in range(3):
        await shelf.put({f"b{part}-{n}": _text(rng) for n in range(200)}, "big")
    texts = {f"s{n}": f"{_text(rng)} unique{n}" for n in range(50)}
    await shelf.put(texts, "small")
    dense_only = [pb.LegSetting(leg=leg, weight=0.0) for leg in (pb.LEG_LEXICAL, pb.LEG_PHRASE)]
    query = "word3 word5 服务器"
    response = await shelf.search(query, "small", legs=dense_only, top_k=20, **PLAIN)
    assert len(response.hits) == 20
    asked = vector(query, 384)
    brute = sorted(texts, key=lambda i: -float(vector(texts[i], 384) @ asked))[:20]
    scores = {h.document_id: h.explanation.legs[0].score for h in response.hits}
    worst = float(vector(texts[brute[-1]], 384) @ asked)
    assert all(s >= worst - 2e-3 for s in scores.values())
    part = pb.SearchScope(collection_id="big", document_ids=[f"b0-{n}" for n in range(50)])
    scoped = await shelf.search(query, scopes=[part], legs=dense_only, top_k=20, **PLAIN)
    assert len(scoped.hits) == 20


async def test_hnsw_is_built_used_and_right(shelf: Shelf, database: Database) -> None:
    await shelf.create("big")
    rng = random.Random(3)
    texts: dict[str, str] = {}
    for part in range(3):
        made = {f"b{part}-{n}": f"{_text(rng)} own{part}x{n}" for n in range(200)}
        await shelf.put(made, "big")
        texts.update(made)
    jobs = (await shelf.stub.ListJobs(pb.ListJobsRequest(kind="build_dense_index"))).jobs
    assert jobs
    ended = await shelf.wait(jobs[-1])
    assert ended.state == common_pb2.JOB_STATE_SUCCEEDED, ended.error.message
    assert float(ended.result["recall"]) >= 0.98
    collection = await shelf.stub.GetCollection(pb.GetCollectionRequest(collection_id="big"))
    assert collection.collection.spaces[0].index == pb.DENSE_INDEX_HNSW
    dense_only = [pb.LegSetting(leg=leg, weight=0.0) for leg in (pb.LEG_LEXICAL, pb.LEG_PHRASE)]
    response = await shelf.search("word7 word9", "big", legs=dense_only, top_k=20, **PLAIN)
    assert {r.method for r in response.explanation.legs if r.leg == pb.LEG_DENSE} == {"hnsw"}
    asked = vector("word7 word9", 384)
    best = sorted(texts, key=lambda i: -float(vector(texts[i], 384) @ asked))[:20]
    assert len({h.document_id for h in response.hits} & set(best)) >= 19
    plan = await _plan(database, shelf.client.tenant.tenant_id)
    assert "vectors_hnsw_" in plan


async def _plan(database: Database, tenant_id: str) -> str:
    """How the service's own role would run its KNN statement."""
    settings = DatabaseSettings(dsn=SecretStr(database.role_dsn("retriever")))
    pool = Pool(settings, schema="retriever")
    await pool.open()
    try:
        async with pool.tenant(tenant_id) as conn:
            # So small a scope is sorted as well; without sorting only the index can serve it.
            await conn.execute("SET LOCAL enable_seqscan = off")
            await conn.execute("SET LOCAL enable_sort = off")
            statement = dense.knn_statement(tenant_id, "big", "small", 384)
            text = "[" + ",".join(["0.05"] * 384) + "]"
            query = b"EXPLAIN " + statement.as_bytes(conn).replace(b"<#> %s", b"<#> %s::halfvec")
            cursor = await conn.execute(query, (text, text, 20))
            return "\n".join(str(r["QUERY PLAN"]) for r in await cursor.fetchall())
    finally:
        await pool.close()


async def test_s20_models_are_switched_under_load(shelf: Shelf, double: EmbedderDouble) -> None:
    await shelf.create()
    texts = {f"d{n}": f"passage {n} about topic{n % 7} and word{n}" for n in range(150)}
    await shelf.put(texts)
    double.delay_s = 0.02
    started = await shelf.stub.StartReembed(
        pb.StartReembedRequest(request_id=rid(), collection_id="docs", model_id="large")
    )
    seen: list[tuple[str, ...]] = []
    stop = asyncio.Event()

    async def read() -> None:
        while not stop.is_set():
            response = await shelf.search("topic3 word10", **PLAIN)
            assert len(response.hits) == 10
            seen.append(tuple(response.explanation.model_ids))

    reader = asyncio.create_task(read())
    progress = []
    async for update in shelf.stub.WatchJob(pb.WatchJobRequest(job_id=started.job.job_id)):
        progress.append(update.job.done)
        if len(progress) == 2:
            await shelf.put({"new": "passage written meanwhile about topic3"})
    double.delay_s = 0.0
    # One search may have begun before the switch; those after it did not.
    before = len(seen)
    async with asyncio.timeout(30):
        while len(seen) < before + 2:  # noqa: ASYNC110 - the reader goes on
            await asyncio.sleep(0.02)
    stop.set()
    await reader
    assert progress[-1] >= 150
    assert seen[0] == ("small",)
    assert seen[-1] == ("large",)
    # One switch, never back and forth.
    assert sum(a != b for a, b in itertools.pairwise(seen)) == 1
    assert "new" in await shelf.found("written meanwhile")
    back = await shelf.stub.SwitchEmbedding(
        pb.SwitchEmbeddingRequest(request_id=rid(), collection_id="docs")
    )
    assert back.collection.model_id == "small"
    after = await shelf.search("topic3 word10", **PLAIN)
    assert list(after.explanation.model_ids) == ["small"]
    assert not after.degradations


async def test_reembedding_twice_and_to_nowhere_is_refused(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({"a": "one"})
    for model in ("small", "unknown-model"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await shelf.stub.StartReembed(
                pb.StartReembedRequest(request_id=rid(), collection_id="docs", model_id=model)
            )
        assert calls.decode(caught.value).fields == ("model_id",)


async def test_i03_sql_without_where_sees_one_tenant_only(shelf: Shelf, database: Database) -> None:
    await shelf.create()
    await shelf.put({"a": "canary"})
    tables = [
        "collections", "spaces", "documents", "uploads", "items", "chunks", "vectors",
        "token_vectors", "segments", "postings", "dead_items", "document_metadata",
        "calibrations", "calibration_pairs", "jobs", "requests",
    ]  # fmt: skip
    with database.connect("retriever") as conn:
        for table in tables:
            row = conn.execute(
                psycopg.sql.SQL("SELECT count(*) AS n FROM {}").format(
                    psycopg.sql.Identifier("retriever", table)
                )
            ).fetchone()
            assert row is not None
            assert row["n"] == 0, table


async def _indexed(shelf: Shelf, collection: str, count: int = 320) -> common_pb2.Job:
    """Fills a collection until an index is built for it; returns the ended job."""
    await shelf.create(collection)
    rng = random.Random(11)
    for part in range(2):
        made = {f"{part}-{n}": f"{_text(rng)} own{part}x{n}" for n in range(count // 2)}
        await shelf.put(made, collection)
    await shelf.put({"last": "one more text"}, collection)
    jobs = (await shelf.stub.ListJobs(pb.ListJobsRequest(kind="build_dense_index"))).jobs
    return await shelf.wait(jobs[-1])


def _index_exists(database: Database, shelf: Shelf, collection: str, model: str) -> bool:
    name = dense.index_name(shelf.client.tenant.tenant_id, collection, model)
    with database.connect() as conn:
        return (
            conn.execute("SELECT 1 FROM pg_indexes WHERE indexname = %s", (name,)).fetchone()
            is not None
        )


async def _dropped(shelf: Shelf) -> None:
    jobs = (await shelf.stub.ListJobs(pb.ListJobsRequest(kind="drop_dense_index"))).jobs
    assert len(jobs) == 1
    assert (await shelf.wait(jobs[0])).state == common_pb2.JOB_STATE_SUCCEEDED


async def test_an_index_goes_with_its_collection(shelf: Shelf, database: Database) -> None:
    assert (await _indexed(shelf, "gone")).result["index"]
    assert _index_exists(database, shelf, "gone", "small")
    await shelf.stub.DeleteCollection(
        pb.DeleteCollectionRequest(request_id=rid(), collection_id="gone")
    )
    await _dropped(shelf)
    assert not _index_exists(database, shelf, "gone", "small")


async def test_s20_an_index_goes_with_its_space_and_the_new_space_gets_one(
    shelf: Shelf, database: Database
) -> None:
    assert (await _indexed(shelf, "moved")).result["index"]
    job = await shelf.stub.StartReembed(
        pb.StartReembedRequest(
            request_id=rid(), collection_id="moved", model_id="large", hold_switch=True
        )
    )
    assert (await shelf.wait(job.job)).state == common_pb2.JOB_STATE_SUCCEEDED
    await shelf.stub.SwitchEmbedding(
        pb.SwitchEmbeddingRequest(
            request_id=rid(), collection_id="moved", model_id="large", drop_previous=True
        )
    )
    await _dropped(shelf)
    assert not _index_exists(database, shelf, "moved", "small")


async def test_an_index_that_failed_its_check_is_not_tried_at_once_again(
    shelf: Shelf, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promotion, "_RECALL", 1.1)
    assert (await _indexed(shelf, "poor")).result["index"] == ""
    assert not _index_exists(database, shelf, "poor", "small")
    for n in range(3):
        await shelf.put({f"more{n}": f"text number {n}"}, "poor")
    jobs = (await shelf.stub.ListJobs(pb.ListJobsRequest(kind="build_dense_index"))).jobs
    assert len(jobs) == 1


async def test_a_graph_that_is_too_coarse_is_built_again_with_more_links(
    shelf: Shelf, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = iter([(None, 0.5), (100, 1.0)])

    async def check(*_: object) -> tuple[int | None, float]:
        return next(verdicts)

    monkeypatch.setattr(promotion.Promoter, "_check", check)
    ended = await _indexed(shelf, "coarse")
    assert (ended.result["ef_search"], ended.result["recall"]) == ("100", "1.0000")
    name = dense.index_name(shelf.client.tenant.tenant_id, "coarse", "small")
    with database.connect() as conn:
        found = conn.execute("SELECT reloptions FROM pg_class WHERE relname = %s", (name,))
        options = [row["reloptions"] for row in found]
    assert options == [["m=32", "ef_construction=200"]]


async def test_an_index_is_not_built_again_for_jobs_that_waited_meanwhile(
    shelf: Shelf, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, go_on = asyncio.Event(), asyncio.Event()
    create, built = dense.create_index, []

    async def slowly(*args: Any) -> str:
        built.append(args[2])
        name = await create(*args)
        under_way.set()
        await go_on.wait()
        return name

    monkeypatch.setattr(dense, "create_index", slowly)
    await shelf.create("busy")
    rng = random.Random(5)
    for part in range(2):
        await shelf.put({f"{part}-{n}": f"{_text(rng)} {part}x{n}" for n in range(160)}, "busy")
    await shelf.put({"one more": "which finds enough vectors"}, "busy")
    async with asyncio.timeout(30):
        await under_way.wait()
        await shelf.put({"late": "written during the build"}, "busy")
        go_on.set()
        jobs = (await shelf.stub.ListJobs(pb.ListJobsRequest(kind="build_dense_index"))).jobs
        assert len(jobs) == 2
        ended = [await shelf.wait(job) for job in jobs]
    assert len({job.result["index"] for job in ended}) == 1
    assert built == ["busy"]
    assert _index_exists(database, shelf, "busy", "small")


@pytest.mark.parametrize(
    ("vectors", "dimensions", "tried", "wants"),
    [
        (10_000, 384, 0, True),
        (9_999, 384, 0, False),
        (10_001, 384, 10_000, False),
        (20_000, 384, 10_000, True),
        (50_000, 4_096, 0, False),
    ],
)
def test_when_an_index_is_due(vectors: int, dimensions: int, tried: int, wants: bool) -> None:
    space = Space("m", "", dimensions, "active", vectors, None, None, tried)
    assert space.wants_index(10_000) is wants
