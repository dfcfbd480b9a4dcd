"""The gate, its features, and the fitting of another model's anchors and coefficients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from services.search import engine, fitting, gate, trust
from services.search.calibration import DEFAULT_MODEL, Calibration, shipped
from services.search.fitting import Sample
from services.search.recipes import recipe
from services.search.types import Confidence, Evidence, Item, Leg, LegResult, LegState

FOUND = shipped(DEFAULT_MODEL)
assert FOUND is not None
CALIBRATION: Calibration = FOUND
SURE = Evidence(
    dense=0.91, coverage=0.6, phrase=None, rerank=0.85, length=120, query_length=12,
    lead=0.08, held=0.9,
)  # fmt: skip
STRAY = Evidence(
    dense=0.78, coverage=0.05, phrase=None, rerank=0.45, length=120, query_length=12,
    lead=0.01, held=0.1,
)  # fmt: skip


def dense(scores: dict[str, float]) -> LegResult:
    return LegResult(Leg.DENSE, scores)


@pytest.mark.parametrize("late", [True, False])
def test_a_sure_hit_passes_and_a_stray_one_does_not(late: bool) -> None:
    sure, stray = (e if late else replace(e, rerank=None) for e in (SURE, STRAY))
    assert gate.relevance(sure, CALIBRATION) > 0.9
    assert gate.relevance(stray, CALIBRATION) < 0.1


@pytest.mark.parametrize("what", ["dense", "rerank", "held", "lead"])
@pytest.mark.parametrize("crosses", [True, False])
@pytest.mark.parametrize("chinese", [True, False])
def test_more_evidence_is_never_less_relevance(what: str, crosses: bool, chinese: bool) -> None:
    less = replace(STRAY, crosses=crosses, chinese=chinese and not crosses)
    more = replace(less, **{what: getattr(SURE, what)})
    assert gate.relevance(more, CALIBRATION) >= gate.relevance(less, CALIBRATION)


def test_every_shipped_coefficient_names_a_feature() -> None:
    known = set(gate.features(SURE, CALIBRATION))
    assert set(CALIBRATION.gate) <= known
    assert set(CALIBRATION.gate_plain) <= known
    assert not any("late" in name for name in CALIBRATION.gate_plain)


def test_terms_held_are_counted_in_both_languages() -> None:
    assert gate.held("Which warranty covers the R6900?", "The R6900 has a warranty.") > 0.6
    assert gate.held("显卡驱动怎么安装", "先安装显卡驱动，再重启。") > 0.5
    assert gate.held("显卡驱动怎么安装", "今天下雨。") == 0.0
    assert gate.held("", "x") == 0.0


def test_the_ranking_shows_what_the_gate_saw() -> None:
    items = {"a": Item("a", text="Cats sleep."), "b": Item("b", text="Dogs bark.")}
    scores = {"a": 0.92, "b": 0.8} | {f"x{n}": 0.79 for n in range(10)}
    ranking = engine.search("猫睡觉吗", [dense(scores)], items, recipe("knowledge"), CALIBRATION)
    seen = ranking.evidence
    assert seen is not None
    assert (seen.dense, seen.crosses, seen.chinese) == (0.92, True, False)
    assert seen.lead == pytest.approx(0.92 - 0.79)
    assert gate.relevance(seen, CALIBRATION) == pytest.approx(ranking.relevance)
    assert engine.search("q", [dense({})], {}, recipe("knowledge"), CALIBRATION).evidence is None


def test_a_verbatim_hit_further_down_keeps_the_list() -> None:
    legs = [
        dense({"a": 0.79, "b": 0.78}),
        LegResult(Leg.PHRASE, {"b": 1.0}),
    ]
    ranking = engine.search("q", legs, {}, recipe("knowledge"), CALIBRATION)
    assert ranking.confidence is Confidence.MEDIUM
    assert {h.id for h in ranking.hits} == {"a", "b"}


def words(scores: dict[str, float]) -> LegResult:
    return LegResult(Leg.LEXICAL, scores, query_weight=100.0)


@pytest.mark.parametrize(
    "legs",
    [
        [words({"a": 20.0, "b": 3.0})],
        [LegResult(Leg.DENSE, state=LegState.SKIPPED), words({"a": 20.0, "b": 3.0})],
        [LegResult(Leg.DENSE, {}, {"b": 0.77}), words({"a": 20.0, "b": 3.0})],
    ],
)
def test_w06_a_first_hit_without_a_vector_is_not_held_back(legs: list[LegResult]) -> None:
    ranking = engine.search("q", legs, {}, recipe("knowledge"), CALIBRATION)
    assert [h.id for h in ranking.hits] == ["a", "b"]
    assert ranking.confidence is Confidence.LOW
    assert ranking.held_back == 0


def test_w06_behind_a_stray_hit_only_what_has_no_vector_is_kept() -> None:
    legs = [dense({"a": 0.79, "b": 0.78}), words({"new": 1.0})]
    ranking = engine.search("q", legs, {}, recipe("knowledge"), CALIBRATION)
    assert [h.id for h in ranking.hits] == ["new"]
    assert (ranking.confidence, ranking.held_back) == (Confidence.LOW, 2)


def test_s07_without_a_dense_leg_in_the_recipe_the_gate_judges_by_words() -> None:
    weights = {Leg.LEXICAL: 1.0, Leg.DENSE: 0.0}
    how = replace(recipe("knowledge"), weights=weights)
    ranking = engine.search("q", [words({"a": 1.0})], {}, how, CALIBRATION)
    assert (ranking.hits, ranking.confidence) == ((), Confidence.NONE)


def test_a_flat_dense_list_weighs_more_but_not_across_languages() -> None:
    flat = dense({f"x{n}": 0.90 - 0.0001 * n for n in range(12)})
    steep = dense({f"x{n}": 0.95 - 0.01 * n for n in range(12)})
    items = {"x0": Item("x0", text="an English passage")}

    def factor(leg: LegResult, query: str, power: float = 0.6) -> float:
        return trust.dense_factor(query, [leg], items, CALIBRATION, power)

    assert factor(flat, "a question") == pytest.approx(2.5)
    assert factor(steep, "a question") < 1.0
    assert factor(flat, "一个中文问题") == 1.0
    assert factor(flat, "a question", power=0.0) == 1.0
    assert trust.dense_factor("q", [dense({"a": 0.9})], {}, CALIBRATION, 0.6) == 1.0


def test_the_weight_of_a_query_is_shown() -> None:
    flat = dense({f"x{n}": 0.90 - 0.0001 * n for n in range(12)})
    ranking = engine.search("q", [flat], {}, recipe("knowledge"), CALIBRATION)
    assert ranking.leg_weights[Leg.DENSE] == pytest.approx(2.5)


def samples(rng: np.random.Generator, count: int, late: bool) -> list[Sample]:
    """Of a model whose inner products lie at 0.3 (unanswered) and 0.6 (answered)."""
    out = []
    for n in range(count):
        relevant = n % 2 == 0
        score = float(rng.normal(0.6 if relevant else 0.3, 0.06))
        base = SURE if relevant else STRAY
        held = float(np.clip(rng.normal(0.7 if relevant else 0.3, 0.15), 0, 1))
        out.append(
            Sample(
                replace(
                    base, dense=score, held=held, lead=0.0, coverage=0.3 * held,
                    rerank=base.rerank if late else None,
                ),
                relevant,
            )
        )  # fmt: skip
    return out


@pytest.mark.parametrize("late", [True, False])
def test_a_model_of_another_scale_gets_a_gate_that_tells_its_samples_apart(late: bool) -> None:
    given = samples(np.random.default_rng(3), 200, late)
    fitted = fitting.fit("other", given, CALIBRATION)
    assert fitted is not None
    assert fitted.model_id == "other"
    assert fitted.dense_low < 0.3 < 0.6 < fitted.dense_high
    passed = [gate.relevance(s.evidence, fitted) >= fitted.none_below for s in given]
    kept = [p for p, s in zip(passed, given, strict=True) if s.relevant]
    stray = [p for p, s in zip(passed, given, strict=True) if not s.relevant]
    assert sum(kept) / len(kept) >= 0.95
    assert sum(stray) / len(stray) <= 0.05
    assert Calibration.from_json(fitted.to_json()) == fitted


def test_too_few_samples_fit_nothing() -> None:
    given = samples(np.random.default_rng(3), 18, late=True)
    assert fitting.fit("other", given, CALIBRATION) is None


def test_anchors_put_two_numbers_at_their_places() -> None:
    low, high = fitting.anchors((0.3, 0.13), (0.6, 0.42))
    assert (0.3 - low) / (high - low) == pytest.approx(0.13)
    assert (0.6 - low) / (high - low) == pytest.approx(0.42)
    low, high = fitting.anchors((0.5, 0.13), (0.5, 0.42))
    assert high > low


def test_logistic_recovers_known_coefficients() -> None:
    rng = np.random.default_rng(5)
    rows = np.column_stack([np.ones(20_000), rng.normal(size=20_000)])
    truth = np.array([-0.5, 2.0])
    labels = (rng.random(20_000) < 1.0 / (1.0 + np.exp(-rows @ truth))).astype(float)
    found = fitting.logistic(rows, labels, np.ones(20_000), np.zeros(2), 1.0)
    assert found == pytest.approx(truth, abs=0.08)
