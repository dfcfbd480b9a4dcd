"""P13: every intent can be forced and is routed to by what a message says and brings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator.domain import TurnInput
from services.orchestrator.intents import INTENTS
from services.orchestrator.router import in_prose, is_question, route

DOCS: dict[str, Any] = {"collection_id": "docs"}
ONE: dict[str, Any] = {"collection_id": "docs", "document_ids": ("d1",)}
ROUTES = (
    ("你好，今天过得怎么样", {}, pb.INTENT_CHAT),
    ("上次说的那个评论方案叫什么来着？", DOCS, pb.INTENT_CHAT),
    ("我叫什么名字？", DOCS, pb.INTENT_CHAT),
    ("剛才說的那個方案叫什麼？", DOCS, pb.INTENT_CHAT),
    ("預設的融合方式是什麼？", DOCS, pb.INTENT_DOCUMENT_QUESTION),
    ("總結一下這篇文章", ONE, pb.INTENT_PERSONALISED_SUMMARY),
    ("What's my name?", DOCS, pb.INTENT_CHAT),
    ("默认的融合方式是什么？", DOCS, pb.INTENT_DOCUMENT_QUESTION),
    ("How long is a background job leased?", DOCS, pb.INTENT_DOCUMENT_QUESTION),
    ("方法部分讲了什么细节", ONE, pb.INTENT_DOCUMENT_QUESTION),
    ("这句话什么意思", {"selected_text": "..."}, pb.INTENT_DOCUMENT_QUESTION),
    ("总结一下这篇文章", ONE, pb.INTENT_PERSONALISED_SUMMARY),
    ("Summarise this paper", ONE, pb.INTENT_PERSONALISED_SUMMARY),
    ("帮我summarise这篇", ONE, pb.INTENT_PERSONALISED_SUMMARY),
    ("帮我制定一个学习计划", DOCS, pb.INTENT_STRUCTURED_PLAN),
    ("Make a learning path for gRPC", DOCS, pb.INTENT_STRUCTURED_PLAN),
    ("提取作者和日期信息", ONE, pb.INTENT_EXTRACT),
    ("帮我总结一下这份规划", ONE, pb.INTENT_PERSONALISED_SUMMARY),
    ("给我总结一下这份学习计划", ONE, pb.INTENT_PERSONALISED_SUMMARY),
    ("帮我看看这个计划有什么问题？", ONE, pb.INTENT_DOCUMENT_QUESTION),
    ("帮我看看这个计划有什么问题", ONE, pb.INTENT_DOCUMENT_QUESTION),
    ("能不能帮我看看这个计划有什么问题？", ONE, pb.INTENT_DOCUMENT_QUESTION),
    ("我们正在制定学习计划", DOCS, pb.INTENT_CHAT),
    ("我制定了一个学习计划，请你评价", ONE, pb.INTENT_DOCUMENT_QUESTION),
    ("来不及完成计划了", DOCS, pb.INTENT_CHAT),
    ("给老板汇报学习计划", DOCS, pb.INTENT_CHAT),
    ("怎么制定学习计划", DOCS, pb.INTENT_DOCUMENT_QUESTION),
    ("给我讲讲这个路线图", ONE, pb.INTENT_DOCUMENT_QUESTION),
    ("列出计划中的步骤", ONE, pb.INTENT_DOCUMENT_QUESTION),
    ("Give me an overview of the roadmap", ONE, pb.INTENT_PERSONALISED_SUMMARY),
    ("How do I make a study plan?", DOCS, pb.INTENT_DOCUMENT_QUESTION),
    ("Give me your view of this learning plan", ONE, pb.INTENT_DOCUMENT_QUESTION),
    ("How does the extract step work?", ONE, pb.INTENT_DOCUMENT_QUESTION),
    ("The extract step fails", ONE, pb.INTENT_DOCUMENT_QUESTION),
    ("怎么提取字段", ONE, pb.INTENT_DOCUMENT_QUESTION),
    ("能不能帮我制定一个学习计划？", DOCS, pb.INTENT_STRUCTURED_PLAN),
    ("根据这些资料制定三个月的复习计划", DOCS, pb.INTENT_STRUCTURED_PLAN),
    ("我想要一份阅读计划。", DOCS, pb.INTENT_STRUCTURED_PLAN),
    ("帮我规划一下怎么学 Rust", DOCS, pb.INTENT_STRUCTURED_PLAN),
    ("給我一份閱讀計劃", DOCS, pb.INTENT_STRUCTURED_PLAN),
    ("Can you draw up a four week study plan for me?", DOCS, pb.INTENT_STRUCTURED_PLAN),
    ("Please create a roadmap", DOCS, pb.INTENT_STRUCTURED_PLAN),
    ("Could you extract the authors?", ONE, pb.INTENT_EXTRACT),
    ("Please extract all dates", ONE, pb.INTENT_EXTRACT),
    ("能不能提取一下作者和日期？", ONE, pb.INTENT_EXTRACT),
    ("帮我extract作者", ONE, pb.INTENT_EXTRACT),
    ("填表", {"response_schema": {"type": "object"}}, pb.INTENT_EXTRACT),
    ("给我学习计划", {"response_schema": {"type": "object"}}, pb.INTENT_STRUCTURED_PLAN),
)


def _input(message: str, **more: Any) -> TurnInput:
    return TurnInput(message=message, event_time=datetime.now(UTC), language="zh", **more)


@pytest.mark.parametrize(("message", "more", "intent"), ROUTES)
def test_p13_routed(message: str, more: dict[str, Any], intent: int) -> None:
    decided = route(_input(message, **more))
    assert decided.intent == intent
    assert decided.reason


@pytest.mark.parametrize("message", [message for message, more, _ in ROUTES if more is ONE])
def test_an_answer_in_prose_is_never_structured(message: str) -> None:
    """Whoever asks for text gets text, whatever the message would else be read as."""
    decided = in_prose(message, documents=1, scoped=True, collection=True)
    assert not INTENTS[decided.intent].structured


def test_p13_every_intent_has_a_route_and_can_be_forced() -> None:
    assert {intent for _, _, intent in ROUTES} == set(INTENTS)
    for intent in INTENTS:
        forced = route(_input("随便", intent=intent))
        assert forced.intent == intent
        assert forced.reason == ""


@pytest.mark.parametrize("text", ["是什么？", "why", "How long", "有多少个", "能不能用"])
def test_questions(text: str) -> None:
    assert is_question(text)


@pytest.mark.parametrize("text", ["那就用 giscus，不用 Disqus 了。", "我叫林晓雨。", "thanks"])
def test_statements(text: str) -> None:
    assert not is_question(text)
