"""Answers without a model truly answer: from memory in the question's language, from evidence
cited.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator.domain import LoadedMemory, MemoryFact, MemoryNote, Readings, TurnInput
from services.orchestrator.reasoner import extractive
from services.orchestrator.reasoner.recollect import wants_short

WHEN = datetime(2026, 5, 4, 8, 0, tzinfo=UTC)
FACTS = (
    MemoryFact("f1", "name", "林晓雨", "用户叫林晓雨", False, "zh"),
    MemoryFact("f2", "occupation", "前端工程师", "用户的职业是前端工程师", False, "zh"),
    MemoryFact("f3", "answer_style", "简短", "用户希望回答简短", True, "zh"),
)
TALK = (
    MemoryNote("t2", "fresh_turns", "那就用 giscus，不用 Disqus 了。", WHEN, 0.0, "s1"),
    MemoryNote(
        "t1", "fresh_turns", "我的博客想加评论功能，Disqus 和 giscus 哪个好？", WHEN, 0.0, "s1"
    ),
    MemoryNote(
        "t0",
        "fresh_turns",
        "我叫林晓雨，是一名前端工程师。以后回答请简短一点。",
        WHEN,
        0.0,
        "s1",
    ),
)
NOTE = MemoryNote("e1", "episodes", "用户为博客评论选了 giscus，弃用 Disqus", WHEN, 0.7, "s1")
DOCS = [
    pb.Evidence(
        evidence_id="E1",
        document_id="retrieval.md",
        title="检索",
        section="融合",
        text=(
            "# 融合\n默认的融合方式是校准凸组合（calibrated）。也可以选 RRF。\n\n"
            "| a | b |\n|---|---|"
        ),
        score=0.9,
    ),
    pb.Evidence(
        evidence_id="E2",
        document_id="operations.md",
        title="Operations",
        text="A background job is leased for thirty seconds. Workers renew their lease.",
        score=0.5,
    ),
]


def _answer(
    message: str,
    memory: LoadedMemory | None = None,
    evidence: list[pb.Evidence] | None = None,
    *,
    language: Any = "zh",
    intent: Any = pb.INTENT_CHAT,
) -> str:
    asked = TurnInput(message=message, event_time=WHEN, language=language, user_id="u")
    return extractive.answer(
        asked, intent, memory or LoadedMemory(), evidence or [], Readings(), "题"
    )


@pytest.mark.parametrize("notes", [TALK, (NOTE,), (*TALK, NOTE)])
def test_e8_what_was_that_scheme_called(notes: tuple[MemoryNote, ...]) -> None:
    answer = _answer("上次说的那个评论方案叫什么来着？", LoadedMemory(notes=notes))
    assert "giscus" in answer
    assert "2026-05-04" in answer


@pytest.mark.parametrize(
    ("question", "language", "expected"),
    [
        ("我叫什么名字？", "zh", "你叫林晓雨"),
        ("What is my name?", "en", "Your name is 林晓雨"),
        ("我是做什么工作的？", "zh", "前端工程师"),
        ("我叫什麼名字？", "zh", "你叫林晓雨"),
        ("我是做什麼工作的？", "zh", "前端工程师"),
        ("你还记得我喜欢怎样的回答吗？", "zh", "简短"),
    ],
)
def test_profile_questions(question: str, language: str, expected: str) -> None:
    assert expected in _answer(question, LoadedMemory(facts=FACTS), language=language)


@pytest.mark.parametrize("question", ["我叫什么名字？", "还记得我怎么称呼、喜欢怎样的回答吗？"])
def test_a1_before_anything_was_extracted(question: str) -> None:
    assert "林晓雨" in _answer(question, LoadedMemory(notes=TALK))


@pytest.mark.parametrize(
    ("question", "language", "expected"),
    [
        ("What do you know about me?", "en", "You work as: 前端工程师"),
        ("Tell me about myself.", "en", "Your name is 林晓雨"),
        ("你知道我的哪些情况？", "zh", "你叫林晓雨"),
        ("你对我有多少了解？", "zh", "你的职业是前端工程师"),
        ("你對我有多少了解？", "zh", "你的职业是前端工程师"),
    ],
)
def test_what_is_known_of_me(question: str, language: str, expected: str) -> None:
    answer = _answer(question, LoadedMemory(facts=FACTS), language=language)
    assert expected in answer
    assert len(answer.splitlines()) == len(FACTS)


@pytest.mark.parametrize("question", ["What do you know about me?", "你了解我什么？"])
def test_what_is_known_of_me_before_anything_was_extracted(question: str) -> None:
    answer = _answer(question, LoadedMemory(notes=TALK))
    assert "前端工程师" in answer or "giscus，不用" in answer
    assert "哪个好" not in answer


@pytest.mark.parametrize("question", ["我叫什么名字？", "你知道我的什么？"])
def test_what_was_said_since_the_profile_was_made_is_told(question: str) -> None:
    """A correction holds from the next turn on, before any extraction has run."""
    changed = MemoryNote("t9", "fresh_turns", "我改名了，现在我叫苏晴。", WHEN, 0.0, "s2")
    said = _answer(question, LoadedMemory(facts=FACTS, notes=(changed, *TALK)))
    assert said.splitlines()[-1] == "根据记忆（2026-05-04）：我改名了，现在我叫苏晴。"
    assert "林晓雨" in said


@pytest.mark.parametrize("question", ["我叫什么名字？", "你知道我的什么？"])
def test_what_the_profile_says_is_not_quoted_again(question: str) -> None:
    said = _answer(question, LoadedMemory(facts=FACTS, notes=TALK[2:]))
    assert said.startswith("你叫林晓雨。")
    assert "根据记忆" not in said


def test_documents_are_quoted_with_their_ids() -> None:
    asked = _answer("默认的融合方式是什么？", None, DOCS, intent=pb.INTENT_DOCUMENT_QUESTION)
    assert "校准凸组合" in asked
    assert asked.splitlines()[0].endswith("[E1]")
    assert "|" not in asked
    english = _answer(
        "How long is a background job leased?",
        None,
        DOCS,
        language="en",
        intent=pb.INTENT_DOCUMENT_QUESTION,
    )
    assert "thirty seconds" in english
    assert "[E2]" in english


def test_the_sentence_that_opens_a_passage_is_heard_too() -> None:
    text = (
        "每张租户表都启用并强制行级安全，策略只有一条。租户写在事务里的设置里，没有设置就一行也看不到。"
        "服务使用的角色不是表的所有者。把查询里的 WHERE 删掉，仍读不到别的租户的行，有测试这样做。"
    )
    passage = pb.Evidence(evidence_id="E1", title="架构", section="隔离由数据库保证", text=text)
    found = extractive.passages("年轮怎样保证一个租户读不到另一个租户的数据？", [passage], 2)
    assert "读不到别的租户" in found.splitlines()[0]
    assert "行级安全" in found.splitlines()[1]


def test_short_answers_where_the_user_asked_for_them() -> None:
    long = LoadedMemory(facts=FACTS)
    question = "后台任务 background job lease 融合 RRF workers？"
    assert len(_answer(question, long, DOCS).splitlines()) <= 2


def test_short_answers_are_asked_for_in_traditional_characters_too() -> None:
    wish = MemoryFact("f", "answer_length", "簡短", "用户的回答长短是簡短", True, "zh")
    assert wants_short(LoadedMemory(facts=(wish,)))


def test_nothing_is_an_answer_too() -> None:
    assert "没有找到" in _answer("火星上有几只猫？")
    assert "记下" in _answer("我叫林晓雨。")
    assert _answer("Hello there", language="en") == "Noted."


WRAPPED_EN = """## Outage

A search that has to do without the embedder is answered by a
lexical search with a note that says so. It recovers by itself
as soon as the embedder is back.

- a list item that goes on for quite a while, longer than a line, and
  ends on its second line
- another"""
WRAPPED_ZH = """向量服务不可用的时候，检索只用关键词这一路来回答，并且在答案
里说明少了一路。恢复以后会自动补上。"""


@pytest.mark.parametrize(
    ("text", "question", "answer"),
    [
        (
            WRAPPED_EN,
            "How is a search without the embedder answered?",
            (
                "A search that has to do without the embedder is answered by a lexical search with"
                " a note that says so. [E1]"
            ),
        ),
        (
            WRAPPED_EN,
            "Where does the list item end that goes on?",
            (
                "a list item that goes on for quite a while, longer than a line, and ends on its"
                " second line [E1]"
            ),
        ),
        (
            WRAPPED_ZH,
            "向量服务不可用的时候检索怎么回答？",
            "向量服务不可用的时候，检索只用关键词这一路来回答，并且在答案里说明少了一路。 [E1]",
        ),
    ],
)
def test_a_sentence_goes_on_over_the_end_of_a_line(text: str, question: str, answer: str) -> None:
    evidence = [pb.Evidence(evidence_id="E1", document_id="d", text=text)]
    assert extractive.passages(question, evidence, 3).split("\n")[0] == answer


def test_lists_tables_and_fields_keep_their_lines() -> None:
    text = (
        "| model | memory in gigabytes and more words to make it wide |\n| R6900 | 6144 |\n"
        "- the first item of the list, long enough to look wrapped here\n- the second item\n"
        "Name: a field with a value that is long enough to look wrapped\nPrice: 100"
    )
    assert extractive._unwrapped(text) == text
