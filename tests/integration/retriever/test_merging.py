"""Which segments of postings are merged when, and what a merge leaves."""

from __future__ import annotations

import numpy as np
import pytest

from nianlun.retriever.v1 import retriever_pb2 as pb
from services.retriever import merging
from tests.integration.retriever.conftest import Shelf, rid
from tests.integration.retriever.test_scale import _lexical_scores, _reference
from tests.support.db import Database


def test_merge_rewrites_an_item_rarely() -> None:
    segments: list[merging.Segment] = []
    rewritten = 0
    for n in range(2_000):
        segments.append(merging.Segment(n, n * 10, n * 10 + 9, 10))
        if len(segments) > merging.MERGE_AT:
            chosen = merging.choose(segments)
            total = sum(s.items for s in chosen)
            rewritten += total
            first = min(s.first_item for s in chosen)
            last = max(s.last_item for s in chosen)
            kept = [s for s in segments if s not in chosen]
            segments = [*kept, merging.Segment(-n, first, last, total)]
    assert len(segments) <= merging.MERGE_AT + 1
    assert rewritten / 20_000 < 40
    assert np.all(np.diff([s.first_item for s in segments]) > 0)


def _segments(*counts: tuple[int, int]) -> list[merging.Segment]:
    """Segments of (items, dead), one after the other."""
    out, first = [], 1
    for n, (count, dead) in enumerate(counts):
        out.append(merging.Segment(n, first, first + count - 1, count, dead))
        first += count
    return out


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ([(100, 0), (100, 24)], []),
        ([(100, 0), (100, 25)], [[1]]),
        ([(4, 1), (100, 0), (8, 8), (1, 1)], [[0], [2, 3]]),
        ([(9_000, 0)] + [(10, 0)] * 9 + [(10, 3)], [list(range(1, 11))]),
        ([(9_000, 3_000)] + [(10, 0)] * 10, [list(range(11))]),
        ([(9_000, 3_000), (9_000, 0)] + [(10, 0)] * 9, [[0], list(range(2, 11))]),
    ],
)
def test_what_is_merged(counts: list[tuple[int, int]], wanted: list[list[int]]) -> None:
    chosen = merging.runs(_segments(*counts))
    assert [[s.segment for s in run] for run in chosen] == wanted


async def test_d01_deleted_words_leave_the_postings(shelf: Shelf, database: Database) -> None:
    await shelf.create()
    texts = {f"d{n}": f"canary{n} among word{n % 3} and others" for n in range(40)}
    await shelf.put(texts)
    await shelf.put({"last": "of a segment of its own"})
    gone = [f"d{n}" for n in range(12)]
    await shelf.stub.DeleteDocuments(
        pb.DeleteDocumentsRequest(
            request_id=rid(), collection_id="docs", document_ids=[*gone, "last"]
        )
    )
    jobs = (await shelf.stub.ListJobs(pb.ListJobsRequest(kind="merge_postings"))).jobs
    assert len(jobs) == 1
    assert (await shelf.wait(jobs[0])).result["merged"] == "2"
    tenant = (shelf.client.tenant.tenant_id,)
    with database.connect() as conn:
        terms = {
            row["term"]
            for row in conn.execute(
                "SELECT term FROM retriever.postings WHERE tenant_id = %s", tenant
            )
        }
        dead = conn.execute(
            "SELECT count(*) AS n FROM retriever.dead_items WHERE tenant_id = %s", tenant
        ).fetchone()
    assert not terms & {f"canari{n}" for n in range(12)} | terms & {f"canary{n}" for n in range(12)}
    assert any(t.startswith("canar") for t in terms)
    assert dead is not None
    assert dead["n"] == 0
    live = {i: t for i, t in texts.items() if i not in gone}
    query = "canary3 canary20 word2 segment"
    assert await _lexical_scores(shelf, query) == pytest.approx(_reference(live, query), abs=1e-6)
