"""From what the legs found to what the engine judges."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from services.retriever import candidates
from services.retriever.domain import Collection, InForce, Scope, StoredChunk
from services.retriever.legs import Found, ScopeQuery, ScopeResult
from services.retriever.reading.blocks import Kind
from services.retriever.spec import SearchSpec
from services.retriever.store.hits import Candidate
from services.search import calibration, engine, gate, language, phrase
from services.search.recipes import RECIPES
from services.search.types import Confidence, Leg, LegResult, RerankResult

QUERY = "年轮怎样保证一个租户读不到另一个租户的数据？"
CHINESE = (
    "每张租户表都启用并强制行级安全，策略只有一条：行的 `tenant_id` 等于事务的租户。"
    "租户写在事务里的 `nianlun.tenant_id`，没有设置就一行也看不到。"
    "服务使用的角色不是表的所有者，也不能绕过行级安全。"
)
ENGLISH = "Row-level security is enabled and forced on every table with rows of a tenant. " * 2


def _result(*texts: str) -> ScopeResult:
    chunks = {
        n: Candidate(
            StoredChunk(f"d{n}", 0, "", n, Kind.PARAGRAPH, (), text, "", 0, len(text), 0), b"%d" % n
        )
        for n, text in enumerate(texts)
    }
    return ScopeResult({}, chunks, {})


@pytest.mark.parametrize("text", [CHINESE, ENGLISH, "短。"])
def test_the_gate_judges_a_candidate_by_its_own_text(text: str) -> None:
    items = candidates.items([_asked("docs")], [_result(text)])
    legs = [
        LegResult(Leg.DENSE, {"0:0": 0.912}),
        LegResult(Leg.LEXICAL, {"0:0": 28.9}, query_weight=100.0),
    ]
    ranking = engine.search(
        QUERY,
        legs,
        items,
        RECIPES["knowledge"],
        calibration.SHIPPED[calibration.DEFAULT_MODEL],
        RerankResult({"0:0": 0.776}, absolute=True),
    )
    seen = ranking.evidence
    assert seen is not None
    assert seen.length == gate.estimated_tokens(text) > 0
    assert seen.held == gate.held(QUERY, text)
    assert seen.chinese is language.is_chinese(text)
    assert seen.crosses is not language.is_chinese(text)
    assert seen.rerank == 0.776


def test_a_close_passage_of_the_same_language_is_not_held_back() -> None:
    ranking = engine.search(
        QUERY,
        [LegResult(Leg.DENSE, {"0:0": 0.912}), LegResult(Leg.LEXICAL, {"0:0": 28.9})],
        candidates.items([_asked("docs")], [_result(CHINESE)]),
        RECIPES["knowledge"],
        calibration.SHIPPED[calibration.DEFAULT_MODEL],
        RerankResult({"0:0": 0.776}, absolute=True),
    )
    assert ranking.confidence is not Confidence.NONE
    assert [h.id for h in ranking.hits] == ["0:0"]


def _asked(name: str, model_id: str = calibration.DEFAULT_MODEL) -> ScopeQuery:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    stored: dict[str, Any] = {
        "display_name": "", "description": "", "default_recipe": "", "previous_model_id": None,
        "tokenizer": "", "version": 0, "document_count": 0, "chunk_count": 0, "item_count": 0,
        "item_length": 0, "etag": "", "create_time": now, "update_time": now,
    }  # fmt: skip
    collection = Collection(collection_id=name, model_id=model_id, **stored)
    return ScopeQuery(Scope(name), collection, ["q"], phrase.needles("q"), None)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
def test_an_empty_scope_does_not_silence_the_words_of_the_others(order: tuple[int, ...]) -> None:
    text = _result("one", "two")
    found = [
        ScopeResult({Leg.LEXICAL: Found("postings", {}, weight=0.0)}, {}, {}),
        ScopeResult({Leg.LEXICAL: Found("postings", {0: 4.0}, weight=10.0)}, text.candidates, {}),
        ScopeResult({Leg.LEXICAL: Found("postings", {1: 4.0}, weight=20.0)}, text.candidates, {}),
    ]
    merged = candidates.merge(
        [_asked(str(n)) for n in order],
        [found[n] for n in order],
        {calibration.DEFAULT_MODEL: InForce(calibration.SHIPPED[calibration.DEFAULT_MODEL], True)},
        SearchSpec("q", (), RECIPES["exact"]),
    )
    leg = next(r for r in merged if r.leg is Leg.LEXICAL)
    # A share of a perfect match is what counts: 0.4 in the one, 0.2 in the other.
    shares = {i: s / leg.query_weight for i, s in leg.scores.items()}
    assert shares == {
        candidates.key(order.index(1), 0): pytest.approx(0.4),
        candidates.key(order.index(2), 1): pytest.approx(0.2),
    }
