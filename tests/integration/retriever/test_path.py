"""From documents to hits, over the public contract."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from services.common.jobs import Retry
from services.retriever.domain import ModelVectors
from services.retriever.ingest import Ingester
from tests.integration.retriever.conftest import Shelf, rid
from tests.integration.retriever.embedder_double import EmbedderDouble
from tests.support import calls
from tests.support.stack import Stack

OFF = [pb.LegSetting(leg=pb.LEG_DENSE, weight=0.0)]


async def test_markdown_comes_back_with_its_section_and_its_explanation(shelf: Shelf) -> None:
    await shelf.create()
    text = "# Manual\n\n## Install\n\nRun it on Python 3.11.\n\n## 评论\n\n博客评论用 giscus。\n"
    job = await shelf.put({"manual": text})
    assert job.state == common_pb2.JOB_STATE_SUCCEEDED
    assert job.result["created"] == "1"
    response = await shelf.search("博客的评论用什么")
    hit = response.hits[0]
    assert list(hit.chunk.section_path) == ["Manual", "评论"]
    assert "giscus" in hit.chunk.text
    assert hit.title == "Manual"
    legs = {leg.leg: leg for leg in hit.explanation.legs}
    assert legs[pb.LEG_LEXICAL].rank == 1
    assert legs[pb.LEG_DENSE].score > 0
    assert response.explanation.recipe == "knowledge"
    assert {t.step for t in response.timings} >= {"embed_query", "lexical", "dense", "fusion"}


async def test_same_content_changes_nothing_and_new_content_replaces(
    shelf: Shelf, double: object
) -> None:
    await shelf.create()
    await shelf.put({"a": "Kangaroos live in Australia."})
    before = (
        await shelf.stub.GetCollection(pb.GetCollectionRequest(collection_id="docs"))
    ).collection
    again = await shelf.put({"a": "Kangaroos live in Australia."})
    assert again.result["unchanged"] == "1"
    after = (
        await shelf.stub.GetCollection(pb.GetCollectionRequest(collection_id="docs"))
    ).collection
    assert after.version == before.version
    changed = await shelf.put({"a": "Penguins live in Antarctica."})
    assert changed.result["replaced"] == "1"
    assert await shelf.found("penguins") == ["a"]
    assert await shelf.found("kangaroos", legs=OFF) == []
    document = await shelf.stub.GetDocument(
        pb.GetDocumentRequest(collection_id="docs", document_id="a", include_text=True)
    )
    assert document.text == "Penguins live in Antarctica."
    assert document.document.revision == 2


async def _upsert(shelf: Shelf, text: str, document_id: str = "a") -> common_pb2.Job:
    request = pb.UpsertDocumentsRequest(
        request_id=rid(),
        collection_id="docs",
        documents=[pb.DocumentInput(document_id=document_id, text=text)],
    )
    return (await shelf.stub.UpsertDocuments(request)).job


async def test_a_replayed_ingest_puts_no_older_version_over_a_newer_one(
    shelf: Shelf, double: EmbedderDouble
) -> None:
    await shelf.create()
    double.delay_s = 1.0
    ahead = await _upsert(shelf, "Something that takes a while.", "slow")
    old = await _upsert(shelf, "The limit is 5 MB.")
    await shelf.stub.CancelJob(pb.CancelJobRequest(job_id=old.job_id, request_id=rid()))
    await shelf.wait(ahead)
    assert (await shelf.wait(old)).state == common_pb2.JOB_STATE_CANCELLED
    double.delay_s = 0.0
    await shelf.put({"a": "The limit is 8 MB."})
    replayed = await shelf.stub.ReplayJob(pb.ReplayJobRequest(job_id=old.job_id, request_id=rid()))
    ended = await shelf.wait(replayed.job)
    assert ended.state == common_pb2.JOB_STATE_SUCCEEDED
    assert (ended.result["created"], ended.result["replaced"]) == ("0", "0")
    document = await shelf.stub.GetDocument(
        pb.GetDocumentRequest(collection_id="docs", document_id="a", include_text=True)
    )
    assert document.text == "The limit is 8 MB."
    assert document.document.revision == 1


async def test_an_ingest_that_goes_on_after_a_restart_counts_what_was_before(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.create()
    await shelf.put({"same": "Otters live in rivers."})
    embed = Ingester._embed
    failures = iter([Retry(after_s=0.01)])

    async def interrupted(self: Ingester, *arguments: Any) -> ModelVectors:
        for failure in failures:
            raise failure
        return await embed(self, *arguments)

    monkeypatch.setattr(Ingester, "_embed", interrupted)
    job = await shelf.put(
        [
            pb.DocumentInput(document_id="same", text="Otters live in rivers."),
            pb.DocumentInput(document_id="bad", data=bytes(range(256)) * 20),
            pb.DocumentInput(document_id="good", text="Penguins live in Antarctica."),
        ]
    )
    assert (job.state, job.attempts, job.done) == (common_pb2.JOB_STATE_SUCCEEDED, 2, 3)
    counts = {name: job.result[name] for name in ("created", "unchanged", "failed", "replaced")}
    assert counts == {"created": "1", "unchanged": "1", "failed": "1", "replaced": "0"}
    assert [item.item_id for item in job.item_errors] == ["bad"]


async def test_equal_texts_are_embedded_once(shelf: Shelf, double: object) -> None:
    await shelf.create()
    await shelf.put({"a": "One text about otters in rivers."})
    count = double.texts  # type: ignore[attr-defined]
    await shelf.put({"b": "One text about otters in rivers."})
    assert double.texts == count  # type: ignore[attr-defined]
    response = await shelf.search("otters")
    assert len(response.hits) == 1
    assert response.hits[0].other_source_count == 1


async def test_same_request_id_same_job(shelf: Shelf) -> None:
    await shelf.create()
    request = pb.UpsertDocumentsRequest(
        request_id=rid(),
        collection_id="docs",
        documents=[pb.DocumentInput(document_id="a", text="alpha")],
    )
    first = (await shelf.stub.UpsertDocuments(request)).job
    second = (await shelf.stub.UpsertDocuments(request)).job
    assert first.job_id == second.job_id
    await shelf.wait(first)


async def test_neighbours_section_and_document(shelf: Shelf) -> None:
    await shelf.create()
    paragraphs = "\n\n".join(f"Paragraph {n} " + "speaks of rain. " * 60 for n in range(6))
    await shelf.put({"a": f"# Rain\n\n{paragraphs}\n\n## Snow\n\nSnow is cold."})
    response = await shelf.search(
        "Paragraph 3", context=pb.ContextOptions(before=1, after=1, parent=True)
    )
    hit = response.hits[0]
    assert len(hit.neighbours) >= 1
    assert hit.chunk.text in hit.parent_text
    opened = await shelf.stub.OpenDocumentPart(
        pb.OpenDocumentPartRequest(
            collection_id="docs",
            document_id="a",
            chunk_id=hit.chunk.chunk_id,
            span=pb.PART_SPAN_SECTION,
            max_chars=100_000,
        )
    )
    assert "Snow is cold" not in opened.text
    assert len(opened.chunks) > 3
    whole = await shelf.stub.OpenDocumentPart(
        pb.OpenDocumentPartRequest(
            collection_id="docs", document_id="a", span=pb.PART_SPAN_DOCUMENT, max_chars=200_000
        )
    )
    assert "Snow is cold" in whole.text


async def test_filters_are_typed(shelf: Shelf) -> None:
    await shelf.create()
    value = common_pb2.Value

    def of(name: str, **metadata: common_pb2.Value) -> pb.DocumentInput:
        made = pb.DocumentInput(document_id=name, text=f"report on turbines, part {name}")
        for key, item in metadata.items():
            made.metadata[key].CopyFrom(item)
        return made

    tags = common_pb2.StringList(values=["wind", "sea"])
    await shelf.put(
        [
            of("a", year=value(int_value=2023), tags=value(string_list=tags)),
            of("b", year=value(double_value=2024.5), public=value(bool_value=True)),
            of("c", lang=value(string_value="zh")),
            of("d", drafts=value(string_list=common_pb2.StringList())),
            of("e", seen=value(timestamp_value=Timestamp())),
            of("f", seen=value(timestamp_value=Timestamp(seconds=1))),
        ]
    )

    async def ids(*conditions: pb.MetadataCondition) -> set[str]:
        scope = pb.SearchScope(collection_id="docs", filter=pb.MetadataFilter(all=list(conditions)))
        return set(await shelf.found("turbines", scopes=[scope]))

    where = pb.MetadataCondition
    assert await ids(where(key="year", op=pb.FILTER_OP_GT, values=[value(int_value=2023)])) == {"b"}
    assert await ids(where(key="year", op=pb.FILTER_OP_LE, values=[value(double_value=2023)])) == {
        "a"
    }
    assert await ids(where(key="tags", op=pb.FILTER_OP_EQ, values=[value(string_value="sea")])) == {
        "a"
    }
    assert await ids(where(key="lang", op=pb.FILTER_OP_NE, values=[value(string_value="zh")])) == {
        "a",
        "b",
        "d",
        "e",
        "f",
    }
    assert await ids(where(key="public", op=pb.FILTER_OP_EXISTS)) == {"b"}
    assert await ids(where(key="public", op=pb.FILTER_OP_NOT_EXISTS)) == {"a", "c", "d", "e", "f"}
    assert await ids(where(key="drafts", op=pb.FILTER_OP_EXISTS)) == {"d"}
    draft = where(key="drafts", op=pb.FILTER_OP_EQ, values=[value(string_value="None")])
    assert await ids(draft) == set()
    begin = [value(timestamp_value=Timestamp())]
    assert await ids(where(key="seen", op=pb.FILTER_OP_EQ, values=begin)) == {"e"}
    assert await ids(where(key="seen", op=pb.FILTER_OP_GT, values=begin)) == {"f"}
    both = [value(string_value="zh"), value(string_value="en")]
    assert await ids(where(key="lang", op=pb.FILTER_OP_IN, values=both)) == {"c"}


async def test_a_name_that_says_another_format_is_another_document(shelf: Shelf) -> None:
    await shelf.create()
    text = "# Limits\n\nThe limit is 5 MB."

    def named(uri: str) -> list[pb.DocumentInput]:
        return [pb.DocumentInput(document_id="a", title="Limits", text=text, uri=uri)]

    first = await shelf.put(named("limits.txt"))
    assert first.result["created"] == "1"
    assert (await shelf.put(named("other.txt"))).result["replaced"] == "1"
    assert (await shelf.put(named("limits.md"))).result["chunks"] == "1"
    read = await shelf.stub.GetDocument(
        pb.GetDocumentRequest(collection_id="docs", document_id="a")
    )
    assert read.document.content_type == pb.CONTENT_TYPE_MARKDOWN
    assert (await shelf.put(named("limits.md"))).result["unchanged"] == "1"


@pytest.mark.parametrize("offset", [30, 2**31 - 2, 2**31 - 1])
async def test_behind_the_end_of_a_text_is_nothing(shelf: Shelf, offset: int) -> None:
    await shelf.create()
    await shelf.put({"a": "The limit is 5 MB."})
    read = await shelf.stub.GetDocument(
        pb.GetDocumentRequest(
            collection_id="docs", document_id="a", include_text=True, text_offset=offset
        )
    )
    assert (read.text, read.text_truncated) == ("", False)


@pytest.mark.parametrize("number", [1e16, 9e18, 1e20, -1e20, 1.7e308])
async def test_a_large_double_comes_back_and_can_be_filtered_by(
    shelf: Shelf, number: float
) -> None:
    await shelf.create()
    made = pb.DocumentInput(document_id="a", text="report on turbines")
    made.metadata["n"].double_value = number
    await shelf.put([made])
    document = await shelf.stub.GetDocument(
        pb.GetDocumentRequest(collection_id="docs", document_id="a")
    )
    assert document.document.metadata["n"] == made.metadata["n"]
    equal = pb.MetadataCondition(key="n", op=pb.FILTER_OP_EQ, values=[made.metadata["n"]])
    scope = pb.SearchScope(collection_id="docs", filter=pb.MetadataFilter(all=[equal]))
    response = await shelf.search("turbines", scopes=[scope])
    assert [h.metadata["n"].double_value for h in response.hits] == [number]


async def test_i06_delete_with_another_tenants_id(
    shelf: Shelf, retriever_stack: object, database: object
) -> None:
    await shelf.create()
    await shelf.put({"mine": "canary-7f3a stays"})
    other = Shelf(retriever_stack.client(database.tenant()))  # type: ignore[attr-defined]
    await other.create()
    for collection in ("docs", "elsewhere"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await other.stub.DeleteDocuments(
                pb.DeleteDocumentsRequest(
                    request_id=rid(), collection_id=collection, document_ids=["mine"]
                )
            )
        assert calls.decode(caught.value).reason == "NOT_FOUND"
    assert await shelf.found("canary-7f3a") == ["mine"]
    assert await other.found("canary-7f3a") == []


async def test_d01_deleted_is_gone_when_the_call_returns(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({"a": "zebra crossing", "b": "zebra stripes"})
    await shelf.stub.DeleteDocuments(
        pb.DeleteDocumentsRequest(request_id=rid(), collection_id="docs", document_ids=["a"])
    )
    for legs in ([], OFF, [pb.LegSetting(leg=pb.LEG_LEXICAL, weight=0.0)]):
        assert await shelf.found("zebra crossing", legs=legs) == ["b"]
    scope = pb.SearchScope(collection_id="docs", document_ids=["a"])
    assert await shelf.found("zebra", scopes=[scope]) == []
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shelf.stub.GetDocument(pb.GetDocumentRequest(collection_id="docs", document_id="a"))
    assert calls.decode(caught.value).reason == "NOT_FOUND"


async def test_d05_same_document_in_two_collections(shelf: Shelf) -> None:
    await shelf.create("one")
    await shelf.create("two")
    for collection in ("one", "two"):
        await shelf.put({"a": "the quetzal is a bird"}, collection)
    await shelf.stub.DeleteDocuments(
        pb.DeleteDocumentsRequest(request_id=rid(), collection_id="one", document_ids=["a"])
    )
    assert (await shelf.search("quetzal", "one")).hits == []
    assert [h.collection_id for h in (await shelf.search("quetzal", "one", "two")).hits] == ["two"]


async def test_w06_embedder_down_while_writing(shelf: Shelf, double: object) -> None:
    await shelf.create()
    double.down = True  # type: ignore[attr-defined]
    job = await shelf.put({"a": "the heron stands in the reeds"})
    assert job.state == common_pb2.JOB_STATE_SUCCEEDED
    assert job.result["pending"] == "1"
    response = await shelf.search("heron")
    assert [h.document_id for h in response.hits] == ["a"]
    kinds = {d.kind for d in response.degradations}
    assert common_pb2.DEGRADATION_KIND_VECTORS_PENDING in kinds
    document = await shelf.stub.GetDocument(
        pb.GetDocumentRequest(collection_id="docs", document_id="a")
    )
    assert document.document.pending_vectors == 1
    double.down = False  # type: ignore[attr-defined]
    backfill = await shelf.stub.BackfillEmbeddings(
        pb.BackfillEmbeddingsRequest(request_id=rid(), collection_id="docs")
    )
    ended = await shelf.wait(backfill.job)
    assert ended.state == common_pb2.JOB_STATE_SUCCEEDED
    found = await shelf.search("heron", legs=[pb.LegSetting(leg=pb.LEG_LEXICAL, weight=0.0)])
    assert [h.document_id for h in found.hits] == ["a"]
    assert not found.degradations


@pytest.mark.parametrize("reason", ["MODEL_UNAVAILABLE", "DEADLINE_EXCEEDED", "OVERLOADED"])
async def test_w06_a_text_that_failed_while_the_model_was_away_is_tried_again(
    shelf: Shelf, double: Any, reason: str
) -> None:
    await shelf.create()
    double.away["heron"] = reason
    job = await shelf.put({"a": "the heron stands in the reeds", "b": "the stork nests"})
    assert (job.state, job.result["pending"]) == (common_pb2.JOB_STATE_SUCCEEDED, "1")
    backfill = await shelf.stub.BackfillEmbeddings(
        pb.BackfillEmbeddingsRequest(request_id=rid(), collection_id="docs")
    )
    async for update in shelf.stub.WatchJob(
        pb.WatchJobRequest(job_id=backfill.job.job_id), timeout=30
    ):
        if update.job.state == common_pb2.JOB_STATE_RETRYING:
            assert update.job.error.reason == getattr(common_pb2, f"ERROR_REASON_{reason}")
            double.away.clear()
    assert update.job.state == common_pb2.JOB_STATE_SUCCEEDED
    assert update.job.attempts >= 2
    document = await shelf.stub.GetDocument(
        pb.GetDocumentRequest(collection_id="docs", document_id="a")
    )
    assert document.document.pending_vectors == 0


async def test_w07_a_text_that_the_model_cannot_take_is_named_with_its_reason(
    shelf: Shelf, double: Any
) -> None:
    await shelf.create()
    double.away["heron"] = "PROVIDER_REFUSED"
    await shelf.put({"a": "the heron stands in the reeds", "b": "the stork nests"})
    backfill = await shelf.stub.BackfillEmbeddings(
        pb.BackfillEmbeddingsRequest(request_id=rid(), collection_id="docs")
    )
    ended = await shelf.wait(backfill.job)
    assert ended.state == common_pb2.JOB_STATE_FAILED
    assert [i.item_id for i in ended.item_errors] == ["a"]
    assert ended.item_errors[0].error.reason == common_pb2.ERROR_REASON_PROVIDER_REFUSED


WARRANTY = (
    "Warranty. Pumps and their motors are covered for 24 months from the day of delivery; seals and"
    " bearings count as wear parts and are covered for six months."
)


@pytest.mark.parametrize("some_have_vectors", [False, True])
async def test_w06_the_gate_lets_through_what_has_no_vector_yet(
    shelf: Shelf, double: object, some_have_vectors: bool
) -> None:
    await shelf.create()
    if some_have_vectors:
        await shelf.put({"old": "The canteen opens at noon."})
    double.down = True  # type: ignore[attr-defined]
    await shelf.put({"a": WARRANTY})
    double.down = False  # type: ignore[attr-defined]
    response = await shelf.search(
        "How long does the warranty of the water pump last?", gate=pb.GATE_MODE_ON
    )
    assert [h.document_id for h in response.hits][:1] == ["a"]
    assert response.confidence == pb.CONFIDENCE_LOW
    kinds = {d.kind for d in response.degradations}
    assert common_pb2.DEGRADATION_KIND_VECTORS_PENDING in kinds


async def test_embedder_down_while_asking_is_flagged(shelf: Shelf, double: object) -> None:
    await shelf.create()
    await shelf.put({"a": "the heron stands in the reeds"})
    double.down = True  # type: ignore[attr-defined]
    response = await shelf.search("heron reeds")
    assert [h.document_id for h in response.hits] == ["a"]
    kinds = {d.kind for d in response.degradations}
    assert common_pb2.DEGRADATION_KIND_DENSE_LEG_SKIPPED in kinds


async def test_d01_a_deleted_document_leaves_the_memory_of_the_process(
    shelf: Shelf, retriever_stack: Stack
) -> None:
    app: Any = retriever_stack.apps["retriever"]

    def held() -> int:
        scopes = app._parts.searcher._cache._entries
        return sum(key.tenant_id == shelf.client.tenant.tenant_id for key in scopes)

    await shelf.create()
    await shelf.put({"a": "canary one", "b": "canary two", "c": "canary three"})
    for document in "abc":
        one = pb.SearchScope(collection_id="docs", document_ids=[document])
        await shelf.search("canary", scopes=[one])
    assert held() == 3
    await shelf.stub.DeleteDocuments(
        pb.DeleteDocumentsRequest(request_id=rid(), collection_id="docs", document_ids=["a"])
    )
    assert held() == 2
    await shelf.stub.DeleteCollection(
        pb.DeleteCollectionRequest(request_id=rid(), collection_id="docs")
    )
    assert held() == 0
