"""Documents and requests that cannot be served fail clearly and alone."""

from __future__ import annotations

import grpc
import pytest

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from tests.integration.retriever.conftest import Shelf, rid
from tests.support import calls


async def test_one_bad_document_fails_alone(shelf: Shelf) -> None:
    await shelf.create()
    job = await shelf.put(
        [
            pb.DocumentInput(document_id="good", text="walruses on the ice"),
            pb.DocumentInput(document_id="binary", data=b"\x00\x01\x02" * 500),
            pb.DocumentInput(document_id="pdf", data=b"%PDF-1.7 broken"),
            pb.DocumentInput(document_id="gb", data=("海象在冰面上休息。" * 9).encode("gb18030")),
            pb.DocumentInput(document_id="blank", data=b"  \n "),
        ]
    )
    assert job.state == common_pb2.JOB_STATE_SUCCEEDED
    assert {e.item_id for e in job.item_errors} == {"binary", "pdf", "blank"}
    assert job.result["created"] == "2"
    assert job.result["failed"] == "3"
    assert (await shelf.found("walruses"))[0] == "good"
    assert (await shelf.found("海象"))[0] == "gb"
    bad = await shelf.stub.GetDocument(
        pb.GetDocumentRequest(collection_id="docs", document_id="binary")
    )
    assert bad.document.state == pb.DOCUMENT_STATE_FAILED
    assert "binary" in bad.document.error.message


async def test_a_bad_new_version_leaves_the_old_one(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({"a": "narwhals have tusks"})
    await shelf.put([pb.DocumentInput(document_id="a", data=b"\x00" * 100)])
    assert await shelf.found("narwhals") == ["a"]


async def test_sanitised_text_is_stored_and_the_change_recorded(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({"a": "abc\u0000def about seals"})
    document = await shelf.stub.GetDocument(
        pb.GetDocumentRequest(collection_id="docs", document_id="a", include_text=True)
    )
    assert document.text == "abcdef about seals"
    changes = [c for s in document.document.sanitizations for c in s.changes]
    assert "nul_removed" in changes


@pytest.mark.parametrize(
    ("documents", "field"),
    [
        ([], "documents"),
        ([pb.DocumentInput(document_id="a")], "documents[0].content"),
        ([pb.DocumentInput(document_id="", text="x")], "documents[0].document_id"),
        ([pb.DocumentInput(document_id="a", text="")], "documents[0].text"),
        ([pb.DocumentInput(document_id="a", text="  ")], "documents[0].text"),
        ([pb.DocumentInput(document_id="a", data=b"")], "documents[0].data"),
        ([pb.DocumentInput(document_id="a", text="x")] * 2, "documents[1].document_id"),
        ([pb.DocumentInput(document_id="a", text="x", title="t" * 501)], "documents[0].title"),
    ],
)
async def test_unusable_requests_name_the_field(
    shelf: Shelf, documents: list[pb.DocumentInput], field: str
) -> None:
    await shelf.create()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shelf.put(documents)
    refused = calls.decode(caught.value)
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.fields == (field,)


async def test_metadata_beyond_limits(shelf: Shelf) -> None:
    await shelf.create()
    many = pb.DocumentInput(document_id="a", text="x")
    for n in range(65):
        many.metadata[f"k{n}"].int_value = n
    key = pb.DocumentInput(document_id="a", text="x")
    key.metadata["not a key"].int_value = 1
    long = pb.DocumentInput(document_id="a", text="x")
    long.metadata["k"].string_value = "v" * 1025
    for document in (many, key, long):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await shelf.put([document])
        assert calls.decode(caught.value).code is grpc.StatusCode.INVALID_ARGUMENT


async def test_fifty_megabytes_are_refused_with_the_limit(shelf: Shelf) -> None:
    await shelf.create()
    request = [pb.DocumentInput(document_id="a", data=b"a" * 50_000_000)]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shelf.put(request)
    refused = calls.decode(caught.value)
    assert refused.reason == "MESSAGE_TOO_LARGE"
    assert refused.metadata["limit_bytes"]


async def test_unknown_things_are_not_found(shelf: Shelf) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shelf.put({"a": "x"}, "nowhere")
    assert calls.decode(caught.value).resource == "collection/nowhere"
    await shelf.create()
    for call in (
        shelf.stub.GetDocument(pb.GetDocumentRequest(collection_id="docs", document_id="%")),
        shelf.stub.OpenDocumentPart(
            pb.OpenDocumentPartRequest(collection_id="docs", document_id="_")
        ),
        shelf.stub.SwitchEmbedding(
            pb.SwitchEmbeddingRequest(request_id=rid(), collection_id="docs", model_id="x")
        ),
        shelf.stub.GetJob(pb.GetJobRequest(job_id="7c1b1a0e-0000-4000-8000-000000000000")),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert calls.decode(caught.value).reason == "NOT_FOUND"


@pytest.mark.parametrize(
    "name", ["%", "_", "*", "\\", "a:b", "'; DROP TABLE", "名字", "a_b", "aXb"]
)
async def test_i01_ids_are_exact(shelf: Shelf, name: str) -> None:
    await shelf.create()
    others = {n: "pelican" for n in ("a_b", "aXb", "plain") if n != name}
    await shelf.put({name: "pelican", **others})
    scope = pb.SearchScope(collection_id="docs", document_ids=[name])
    response = await shelf.search("pelican", scopes=[scope])
    assert [h.document_id for h in response.hits] == [name]
    assert response.hits[0].other_source_count == 0
    await shelf.stub.DeleteDocuments(
        pb.DeleteDocumentsRequest(request_id=rid(), collection_id="docs", document_ids=[name])
    )
    left = await shelf.stub.ListDocuments(pb.ListDocumentsRequest(collection_id="docs"))
    assert {d.document_id for d in left.documents} == set(others)


async def test_etag_and_update(shelf: Shelf) -> None:
    made = await shelf.create()
    changed = await shelf.stub.UpdateCollection(
        pb.UpdateCollectionRequest(
            request_id=rid(), collection_id="docs", etag=made.etag, description="about birds"
        )
    )
    assert changed.collection.description == "about birds"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shelf.stub.UpdateCollection(
            pb.UpdateCollectionRequest(
                request_id=rid(), collection_id="docs", etag=made.etag, description="other"
            )
        )
    assert calls.decode(caught.value).reason == "ETAG_MISMATCH"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shelf.create()
    assert calls.decode(caught.value).reason == "ALREADY_EXISTS"


async def test_deleting_a_collection_leaves_nothing(shelf: Shelf, database: object) -> None:
    await shelf.create()
    await shelf.put({"a": "canary text", "b": "more"})
    gone = await shelf.stub.DeleteCollection(
        pb.DeleteCollectionRequest(request_id=rid(), collection_id="docs")
    )
    assert gone.documents_deleted == 2
    with database.connect() as conn:  # type: ignore[attr-defined]
        for table in ("chunks", "items", "vectors", "postings", "documents", "uploads"):
            row = conn.execute(
                f"SELECT count(*) AS n FROM retriever.{table} WHERE tenant_id = %s",
                (shelf.client.tenant.tenant_id,),
            ).fetchone()
            assert row["n"] == 0, table


async def test_calibration_is_fitted_and_shown(shelf: Shelf) -> None:
    await shelf.create()
    texts = {
        f"d{n}": f"The {animal} number {n} lives in region {n} and eats plant{n} every day."
        for n, animal in enumerate(["lynx", "otter", "crane", "boar", "hare"] * 6)
    }
    await shelf.put(texts)
    started = await shelf.stub.Calibrate(
        pb.CalibrateRequest(request_id=rid(), collection_id="docs")
    )
    ended = await shelf.wait(started.job)
    assert ended.state == common_pb2.JOB_STATE_SUCCEEDED, ended.error.message
    found = await shelf.stub.GetCalibration(pb.GetCalibrationRequest(model_id="small"))
    assert found.calibration.fitted
    assert found.calibration.dense_low < found.calibration.dense_high
    on = await shelf.search("The otter number 6 lives in region", gate=pb.GATE_MODE_ON)
    assert on.confidence >= pb.CONFIDENCE_MEDIUM
    off = await shelf.search("sourdough recipe without yeast", gate=pb.GATE_MODE_ON)
    assert off.hits == []
    assert off.confidence == pb.CONFIDENCE_NONE
