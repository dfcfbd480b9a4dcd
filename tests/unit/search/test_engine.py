"""The engine's promises, on hand-made legs."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from services.search import diversity, engine, phrase
from services.search.bm25 import RamIndex
from services.search.calibration import DEFAULT_MODEL, Calibration, shipped
from services.search.recipes import Fusion, Recipe, RecipeError, customise, recipe
from services.search.types import (
    Confidence,
    DegradationCode,
    Item,
    Leg,
    LegResult,
    LegState,
    RerankResult,
)

FOUND = shipped(DEFAULT_MODEL)
assert FOUND is not None
CALIBRATION: Calibration = FOUND
OPEN = replace(recipe("knowledge"), gate=False)


def dense(**scores: float) -> LegResult:
    return LegResult(Leg.DENSE, scores)


def lexical(query_weight: float = 20.0, **scores: float) -> LegResult:
    return LegResult(Leg.LEXICAL, scores, query_weight=query_weight)


def ids(legs: list[LegResult], how: Recipe = OPEN, items: dict[str, Item] | None = None,
        reranked: RerankResult | None = None) -> list[str]:  # fmt: skip
    return [h.id for h in engine.search("q", legs, items or {}, how, CALIBRATION, reranked).hits]


def lexical_hits(stored: str, asked: str) -> bool:
    return bool(RamIndex.of_texts([("it", stored), ("x", "无关的一句话")]).leg(asked, 5).scores)


@pytest.mark.parametrize("asked", ["精排", "模型", "rerank", "最近用什么精排"])
def test_s01_words_of_a_mixed_note(asked: str) -> None:
    assert lexical_hits("我们最近配置的 rerank 精排是什么模型", asked)


@pytest.mark.parametrize("asked", ["花名", "小云"])
def test_s02_short_names(asked: str) -> None:
    assert lexical_hits('用户的花名是"小云"', asked)


def test_s03_a_compound_within_a_question() -> None:
    assert lexical_hits("外币汇率换算", "帮我查一下外币汇率换算的规则")


def test_s04_a_question_that_shares_two_words() -> None:
    assert lexical_hits(
        "The overtime policy covers weekends.", "Who exactly decided on the overtime policy then?"
    )


def test_s06_a_rare_identifier_and_a_meaning_both_come_up() -> None:
    query = "invoice INV-20931"
    texts = {"id": "INV-20931 freezer", "meaning": "a bill to be paid"}
    texts |= {f"x{n}": f"other text {n}" for n in range(8)}
    index = RamIndex.of_texts(texts.items())
    legs = [
        dense(meaning=0.9, **{f"x{n}": 0.85 for n in range(8)}, id=0.76),
        index.leg(query, 100),
        phrase.leg(query, {i: phrase.searchable(t) for i, t in texts.items()}, 100),
    ]
    ranking = engine.search(query, legs, {}, recipe("knowledge"), CALIBRATION)
    top = {h.id: h for h in ranking.hits[:5]}
    assert {"id", "meaning"} <= set(top)
    assert top["id"].votes[Leg.LEXICAL].rank == 1
    assert top["meaning"].votes[Leg.DENSE].rank == 1
    assert ranking.confidence in (Confidence.MEDIUM, Confidence.HIGH)


def test_s07_nothing_relevant_gives_nothing_and_says_how_much_was_held_back() -> None:
    ranking = engine.search(
        "aubergines", [dense(a=0.78, b=0.77), lexical()], {}, recipe("knowledge"), CALIBRATION
    )
    assert ranking.hits == ()
    assert ranking.confidence is Confidence.NONE
    assert ranking.held_back == 2


@pytest.mark.parametrize(
    ("stored", "asked"),
    [("ＤＤＲ５ 内存 ＲＴＸ４０９０", "ddr5"), ("ddr5 rtx4090", "ＲＴＸ４０９０")],
)
def test_s10_full_width(stored: str, asked: str) -> None:
    assert lexical_hits(stored, asked)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("r6900g5", "model"),
        ("R6900-G5", "model"),
        ("2024-1234", "cve"),
        ("overtime service", "class"),
        ("311992d3", "part"),
        ("NOR.0707-60", "form"),
        ("R6900", "model"),
        ("R6900 内存", "model"),
    ],
)
def test_s11_s13_identifiers_come_first(asked: str, wanted: str) -> None:
    texts = {
        "model": "新华三 R6900 G5 内存 8TB",
        "cve": "CVE-2024-1234",
        "swapped": "CVE-1234-2024",
        "part": "311992D3",
        "form": "NOR.0707-60",
        "class": "OvertimeService",
        "other": "R4900 服务器",
    }
    leg = RamIndex.of_texts(texts.items()).leg(asked, 10)
    assert leg.ranked()[0] == wanted
    longer = RamIndex.of_texts(texts.items()).leg("R6900 服务器 支持多少内存", 10)
    assert "model" in longer.scores


def test_s14_duplicates_collapse_and_every_distinct_text_can_be_found() -> None:
    items = {f"same{n}": Item(f"same{n}", content_hash="h") for n in range(500)}
    items |= {f"own{n}": Item(f"own{n}", content_hash=str(n)) for n in range(100)}
    legs = [dense(**{i: 0.9 if i.startswith("same") else 0.85 for i in items})]
    how = replace(OPEN, top_k=200, weights={Leg.DENSE: 1.0})
    ranking = engine.search("q", legs, items, how, CALIBRATION)
    assert len(ranking.hits) == 101
    assert ranking.collapsed == 499
    assert len(ranking.hits[0].duplicates) == 499


def test_s17_weights_change_the_order_and_unknown_parameters_are_refused() -> None:
    legs = [dense(a=0.95, b=0.80), lexical(a=1.0, b=19.0)]
    semantic = customise(OPEN, {"weights": {"lexical": 0.0, "dense": 1.0}})
    wordly = customise(OPEN, {"weights": {"lexical": 1.0, "dense": 0.0}})
    assert ids(legs, semantic) == ["a", "b"]
    assert ids(legs, wordly) == ["b", "a"]
    for bad in ({"topk": 3}, {"weights": {"dense": -1}}, {"weights": {"vibes": 1}}, {"top_k": 0},
                {"fusion": "magic"}, {"mmr_lambda": float("nan")}):  # fmt: skip
        with pytest.raises(RecipeError):
            customise(OPEN, bad)
    with pytest.raises(RecipeError):
        recipe("nope")


def test_s18_one_text_in_two_documents_counts_once_and_names_both() -> None:
    items = {
        "a": Item("a", document_id="d1", content_hash="h"),
        "b": Item("b", document_id="d2", content_hash="h"),
    }
    hit = engine.search("q", [dense(a=0.9, b=0.9)], items, OPEN, CALIBRATION).hits
    assert [h.id for h in hit] == ["a"]
    assert hit[0].duplicates == ("b",)


def test_s19_reranker_with_nothing_with_one_and_too_slow() -> None:
    assert ids([], reranked=RerankResult()) == []
    assert ids([dense(a=0.9)], reranked=RerankResult({"a": 0.1})) == ["a"]
    legs = [dense(a=0.9, b=0.88, c=0.86)]
    late = RerankResult({}, complete=False, reason="budget")
    ranking = engine.search("q", legs, {}, OPEN, CALIBRATION, late)
    assert [h.id for h in ranking.hits] == ["a", "b", "c"]
    assert [d.code for d in ranking.degradations] == [DegradationCode.RERANK_FAILED]
    partial = RerankResult({"a": 0.1, "b": 0.9}, complete=False)
    trusting = replace(OPEN, rerank_weight=2.0)
    ranking = engine.search("q", legs, {}, trusting, CALIBRATION, partial)
    assert [h.id for h in ranking.hits][:1] == ["b"]
    assert ranking.hits[-1].id == "c"
    assert [d.code for d in ranking.degradations] == [DegradationCode.RERANK_PARTIAL]


def test_each_legs_top_three_reach_the_reranker() -> None:
    how = replace(OPEN, rerank_head=1)
    legs = [dense(a=0.95, b=0.94, c=0.93, d=0.5), lexical(d=19.0)]
    assert {"a", "b", "c", "d"} <= set(engine.fuse("q", legs, {}, how, CALIBRATION).head)


@pytest.mark.parametrize("kind", list(Fusion))
def test_a_keyword_only_hit_can_win(kind: Fusion) -> None:
    legs = [dense(a=0.80, b=0.79), lexical(a=1.0, only=20.0)]
    even = replace(OPEN, fusion=kind, weights={Leg.DENSE: 1.0, Leg.LEXICAL: 1.0})
    assert "only" in ids(legs, even)[:2]


def test_a_failed_leg_is_a_degradation_and_the_rest_answers() -> None:
    failed = LegResult(Leg.DENSE, state=LegState.FAILED, reason="embedder away")
    ranking = engine.search("q", [failed, lexical(a=19.0)], {}, OPEN, CALIBRATION)
    assert [h.id for h in ranking.hits] == ["a"]
    assert [d.subject for d in ranking.degradations] == ["dense"]


def test_unmatched_rows_get_no_lexical_vote() -> None:
    hits = engine.search("q", [dense(a=0.9, b=0.8), lexical(b=9.0)], {}, OPEN, CALIBRATION).hits
    assert Leg.LEXICAL not in {h.id: h for h in hits}["a"].votes


def test_decay_halves_towards_its_floor() -> None:
    now = datetime(2026, 1, 31, tzinfo=UTC)
    items = {
        "new": Item("new", time=now),
        "old": Item("old", time=now - timedelta(days=30)),
        "ancient": Item("ancient", time=now - timedelta(days=3_000)),
    }
    how = replace(OPEN, half_life_days=30.0, decay_floor=0.5, quality=False)
    legs = [dense(new=0.9, old=0.9, ancient=0.9)]
    ranking = engine.search("q", legs, items, how, CALIBRATION, now=now)
    assert {h.id: round(h.decay, 2) for h in ranking.hits} == {
        "new": 1.0, "old": 0.75, "ancient": 0.5,
    }  # fmt: skip


def test_a_turn_borrows_from_its_neighbours() -> None:
    items = {str(n): Item(str(n), group="s1", position=n) for n in range(3)}
    items["far"] = Item("far", group="s2", position=1)
    legs = [dense(**{"0": 0.80, "1": 0.95, "2": 0.79, "far": 0.80})]
    how = replace(recipe("conversation"), gate=False)
    ranking = engine.search("q", legs, items, how, CALIBRATION)
    order = [h.id for h in ranking.hits]
    assert order.index("2") < order.index("far")
    assert ranking.hits[0].propagated > 0.0


def test_near_duplicates_mmr_and_cap() -> None:
    one, two = np.asarray([1.0, 0.0], np.float32), np.asarray([0.0, 1.0], np.float32)
    items = {
        "a": Item("a", document_id="d", vector=one),
        "b": Item("b", document_id="d", vector=one),
        "c": Item("c", document_id="e", vector=two),
    }
    legs = [dense(a=0.95, b=0.94, c=0.90)]
    assert ids(legs, replace(OPEN, near_duplicate=0.99), items) == ["a", "c"]
    assert ids(legs, replace(OPEN, mmr_lambda=0.3), items)[:2] == ["a", "c"]
    assert ids(legs, replace(OPEN, per_document=1), items) == ["a", "c"]


def test_calibration_survives_json() -> None:
    assert Calibration.from_json(CALIBRATION.to_json()) == CALIBRATION
    with pytest.raises(ValueError, match="calibration"):
        Calibration.from_json('{"x": 1}')


@pytest.mark.parametrize("seed", range(8))
def test_s14_families_are_those_of_a_plain_comparison(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, keep, near = int(rng.integers(300, 900)), int(rng.integers(1, 400)), 0.9
    vectors = rng.standard_normal((count, 5)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    order = [str(n) for n in range(count)]
    items = {i: Item(id=i, vector=v) for i, v in zip(order, vectors, strict=True)}
    kept: list[int] = []
    for n in range(count):
        among = kept[:keep] if len(kept) < keep else []
        if not any(float(vectors[m] @ vectors[n]) >= near for m in among):
            kept.append(n)
    assert diversity.collapse(order, items, near, keep).order == tuple(map(str, kept))


def test_s14_three_thousand_candidates_are_compared_in_time() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((3_000, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    order = [str(n) for n in range(3_000)]
    items = {i: Item(id=i, vector=v) for i, v in zip(order, vectors, strict=True)}
    begun = time.perf_counter()
    collapsed = diversity.collapse(order, items, 0.95, 4_000)
    chosen = diversity.mmr(order, {i: 1 / (1 + int(i)) for i in order}, items, 0.5, 1_000)
    assert time.perf_counter() - begun < 10  # pair by pair it took half a minute
    assert collapsed.dropped == 0
    assert sorted(chosen) == sorted(order)


def test_calibration_of_an_earlier_version_keeps_its_anchors() -> None:
    old = (
        '{"model_id": "m", "dense_low": 0.1, "dense_high": 0.6, "gate_bias": -4.0, "gate_dense": 6}'
    )
    read = Calibration.from_json(old)
    assert (read.dense_low, read.dense_high) == (0.1, 0.6)
    assert read.gate == CALIBRATION.gate
    with pytest.raises(ValueError, match="gate"):
        Calibration.from_json('{"model_id": "m", "dense_low": 0, "dense_high": 1, "gate": [1]}')


def _mixed() -> dict[str, Item]:
    """Two models of 4 dimensions and one of 3; `a` and `d` are alike in numbers alone."""
    four, three = np.eye(4, dtype=np.float32), np.eye(3, dtype=np.float32)
    vectors = {
        "a": (four[0], "m"), "b": (four[0], "m"), "c": (three[0], "wide"), "d": (four[0], "n"),
        "e": (three[0], "wide"), "f": (None, ""),
    }  # fmt: skip
    return {i: Item(i, vector=v, space=s) for i, (v, s) in vectors.items()}


def test_near_duplicates_are_of_one_model() -> None:
    collapsed = diversity.collapse("abcdef", _mixed(), 0.9, 10)
    assert collapsed.order == ("a", "c", "d", "f")
    assert collapsed.sources == {"a": ("b",), "c": ("e",)}


def test_items_of_two_models_are_unlike_for_mmr() -> None:
    scores = {i: 1.0 - n / 100 for n, i in enumerate("abcdef")}
    chosen = diversity.mmr("abcdef", scores, _mixed(), 0.5, 6)
    # First one of each kind, then what repeats them.
    assert chosen == ("a", "c", "d", "f", "b", "e")
