"""Both lexical indexes give the reference formula's scores."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.search import gate
from services.search.bm25 import RamIndex, idf, query_weight, reference_scores
from services.search.cache import RamIndexCache
from services.search.postings import Query, TermPostings, common, merge, pack, unpack
from services.search.tok import tokenize
from services.search.types import LegState

WORD = st.sampled_from([f"w{i}" for i in range(12)])
CORPUS = st.lists(st.lists(WORD, max_size=12), min_size=1, max_size=25)
QUERY = st.lists(WORD, min_size=1, max_size=6, unique=True)


@settings(max_examples=80, deadline=None)
@given(CORPUS, QUERY)
def test_ram_index_equals_the_formula(corpus: list[list[str]], query: list[str]) -> None:
    index = RamIndex([str(n) for n in range(len(corpus))], corpus)
    if not any(corpus):
        assert not index.scores(query).any()
        return
    np.testing.assert_allclose(index.scores(query), reference_scores(corpus, query), atol=1e-6)


def postings_of(corpus: list[list[str]], query: list[str], apart: int) -> list[TermPostings]:
    """Two segments a term; documents are items `apart` from each other."""
    terms: list[TermPostings] = []
    for term in query:
        holders = [n for n, d in enumerate(corpus) if term in d]
        half = len(holders) // 2
        parts = [
            unpack(
                pack(
                    [apart * n for n in p],
                    [corpus[n].count(term) for n in p],
                    [len(corpus[n]) for n in p],
                )
            )
            for p in (holders[:half], holders[half:])
        ]
        terms.append(TermPostings(len(holders), parts))
    return terms


SOME = st.sets(st.integers(0, 24), max_size=5)


@settings(max_examples=300, deadline=None)
@given(CORPUS, QUERY, st.integers(1, 30), SOME, st.none() | SOME, st.sampled_from([1, 200_000]))
def test_packed_postings_equal_the_formula(
    corpus: list[list[str]],
    query: list[str],
    k: int,
    dead: set[int],
    among: set[int] | None,
    apart: int,
) -> None:
    """`dead` items are not returned, of others only `among`; the statistics are those handed in.
    Items far `apart` are numbered in another way."""
    total = sum(map(len, corpus))
    asked = Query.of(
        postings_of(corpus, query, apart),
        len(corpus),
        total,
        np.asarray([apart * n for n in dead], np.uint32),
        None if among is None else np.asarray([apart * n for n in among], np.uint32),
    )
    items, scores = asked.best(k)
    wanted = reference_scores(corpus, query) if total else [0.0] * len(corpus)
    positive = {apart * n: s for n, s in enumerate(wanted) if s > 0.0}
    allowed = range(len(corpus)) if among is None else among
    alive = {i: positive[i] for n in allowed if n not in dead and (i := apart * n) in positive}
    best = sorted(alive.values(), reverse=True)[:k]
    np.testing.assert_allclose(scores, best, atol=1e-6)
    np.testing.assert_allclose(scores, [alive[int(n)] for n in items], atol=1e-6)
    assert asked.scores_of([apart * n for n in range(len(corpus))]) == pytest.approx(positive)


def test_the_top_of_a_large_scope_equals_the_formula() -> None:
    """Enough items that common words are looked up for some candidates only."""
    rng = np.random.default_rng(4)
    words = [f"w{n}" for n in range(200)]
    weights = 1.0 / np.arange(1, 201)
    corpus = [
        [words[i] for i in rng.choice(200, rng.integers(3, 40), p=weights / weights.sum())]
        for _ in range(3_000)
    ]
    total = sum(map(len, corpus))
    for _ in range(10):
        query = [words[i] for i in rng.choice(200, 6, replace=False, p=weights / weights.sum())]
        wanted = np.asarray(reference_scores(corpus, query))
        items, scores = Query.of(postings_of(corpus, query, 1), len(corpus), total).best(50)
        np.testing.assert_allclose(scores, np.sort(wanted)[::-1][:50], atol=1e-6)
        np.testing.assert_allclose(scores, wanted[items], atol=1e-6)


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_common_items_are_counted(left: set[int], right: set[int]) -> None:
    rows = [np.asarray(sorted(s), np.uint32) for s in (left, right)]
    assert common(rows[0], rows[1]) == len(left & right)


def test_the_share_of_terms_held_is_that_of_the_texts() -> None:
    texts = {"a": "盐和冰的实验 salt", "b": "ice and salt", "c": "", "d": "没有关系的句子"}
    index = RamIndex.of_texts(texts.items())
    for query in ("冰 salt", "salt", "unknown words", "...", ""):
        held = index.held(query)
        assert held == {i: h for i, t in texts.items() if (h := gate.held(query, t)) > 0}


def test_idf_is_positive_where_rank_bm25_is_not() -> None:
    assert idf(2, 1) > 0.0
    assert idf(2, 2) > 0.0
    index = RamIndex.of_texts([("a", "苹果 pie"), ("b", "苹果 tart")])
    both = index.leg("苹果", 5)
    assert set(both.scores) == {"a", "b"}
    assert min(both.scores.values()) > 0.0
    assert set(index.leg("tart", 5).scores) == {"b"}


@pytest.mark.parametrize("texts", [[], [("a", "")], [("a", "   "), ("b", "!!!")]])
def test_empty_scopes_find_nothing(texts: list[tuple[str, str]]) -> None:
    assert not RamIndex.of_texts(texts).leg("anything", 1_000).scores


def test_only_unknown_words_find_nothing() -> None:
    leg = RamIndex.of_texts([("a", "花名 小云")]).leg("zebra", 10)
    assert leg.state is LegState.OK
    assert not leg.scores
    assert leg.query_weight == pytest.approx(query_weight([0], 1))


def test_segments_merge_without_the_dead_and_later_wins() -> None:
    old, new = unpack(pack([1, 2, 9], [1, 1, 1], [5, 5, 5])), unpack(pack([2], [7], [8]))
    merged = unpack(merge([old, new], dead=np.asarray([9], np.uint32)))
    assert merged.items.tolist() == [1, 2]
    assert merged.tfs.tolist() == [1, 7]


def test_broken_postings_are_refused() -> None:
    with pytest.raises(ValueError, match="no posting list"):
        unpack(b"123")
    with pytest.raises(ValueError, match="twice"):
        pack([1, 1], [1, 1], [1, 1])


def test_an_index_is_built_once_under_concurrent_asks() -> None:
    cache = RamIndexCache(max_scopes=2)
    at_once = threading.Barrier(16)

    def load() -> RamIndex:
        time.sleep(0.05)
        return RamIndex.of_texts([("a", "text")])

    got: list[RamIndex] = []

    def ask() -> None:
        at_once.wait()
        got.append(cache.get("scope", 1, load))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.builds == 1
    assert all(index is got[0] for index in got)


def test_cache_is_bounded_and_forgets() -> None:
    cache = RamIndexCache(max_scopes=2)
    for scope in "abc":
        cache.get(scope, 1, lambda: RamIndex.of_texts([("a", "text")]))
    assert len(cache) == 2
    cache.get("c", 2, lambda: RamIndex.of_texts([("a", "text")]))
    assert cache.builds == 4
    cache.drop(lambda scope: scope == "c")
    assert len(cache) == 1


def test_an_unused_index_leaves_memory_in_time() -> None:
    now = 0.0
    cache = RamIndexCache(max_idle_s=60.0, clock=lambda: now)
    for scope in ("kept", "left"):
        cache.get(scope, 1, lambda: RamIndex.of_texts([("a", "text")]))
    now = 50.0
    cache.get("kept", 1, lambda: RamIndex.of_texts([("a", "text")]))
    now = 70.0
    cache.sweep()
    assert len(cache) == 1
    assert cache.builds == 2
    now = 120.0
    cache.sweep()
    assert len(cache) == 0


def test_an_index_that_is_built_while_its_scope_is_dropped_is_not_kept() -> None:
    cache = RamIndexCache()

    def load() -> RamIndex:
        cache.drop(lambda scope: scope == "a")
        return RamIndex.of_texts([("a", "text")])

    assert len(cache.get("a", 1, load)) == 1
    assert len(cache) == 0


def test_a_failed_build_is_tried_again() -> None:
    cache = RamIndexCache()

    def broken() -> RamIndex:
        raise OSError("store away")

    with pytest.raises(OSError, match="store away"):
        cache.get("a", 1, broken)
    assert len(cache.get("a", 1, lambda: RamIndex(["x"], [tokenize("text")]))) == 1
