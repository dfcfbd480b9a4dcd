"""From texts to packed postings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.retriever.domain import IndexedText
from services.retriever.indexing import pack_segment
from services.search.postings import pack

TERMS = st.dictionaries(st.sampled_from(["a", "b", "服务", "R6900", "z"]), st.integers(1, 70_000))


@given(st.lists(TERMS, max_size=12), st.integers(1, 1_000_000))
def test_a_segment_holds_each_terms_postings(texts: list[dict[str, int]], first: int) -> None:
    indexed = [IndexedText(b"", b"", "", t, sum(t.values())) for t in texts]
    wanted = {}
    for term in sorted({t for terms in texts for t in terms}):
        rows = [n for n, terms in enumerate(texts) if term in terms]
        wanted[term] = pack(
            [first + n for n in rows],
            [texts[n][term] for n in rows],
            [indexed[n].length for n in rows],
        )
    packed = pack_segment(first, indexed)
    assert dict(packed) == wanted
    assert [term for term, _ in packed] == sorted(wanted)
