"""Verification: what halves a sentence's support, and what becomes of a long answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common.deadlines import Deadline
from services.orchestrator.domain import TurnInput
from services.orchestrator.events import EventLog
from services.orchestrator.ports import Knowledge
from services.orchestrator.steps.verify import Verify, support
from services.orchestrator.turn import Turn
from services.search.tok import tokenize


@pytest.mark.parametrize(
    ("claim", "passage", "halved"),
    [
        ("效果非常好", "效果很好", False),
        ("未来三年收入会增长", "三年内收入会增长", False),
        ("无线网络稳定", "网络稳定", False),
        ("产品不仅便宜而且稳定", "产品便宜而且稳定", False),
        ("效果不好", "效果很好", True),
        ("效果不好", "效果非常好", True),
        ("效果不好", "效果非常不好", False),
        ("他不同意方案", "他同意方案", True),
        ("It is not only fast", "It is fast", False),
        ("It is not fast", "It is fast", True),
        ("收入增长了 30%", "收入增长了 20%", True),
    ],
)
def test_a_negation_or_number_that_the_passage_lacks_halves_its_support(
    claim: str, passage: str, halved: bool
) -> None:
    wanted = set(tokenize(claim))
    shared = len(wanted & set(tokenize(passage))) / len(wanted)
    assert shared > 0
    assert support(claim, passage) == pytest.approx(shared / 2 if halved else shared)


def _answered(text: str, language: str) -> Turn:
    asked = TurnInput(
        message="?", event_time=datetime(2024, 5, 1, tzinfo=UTC), language=language, verify=True  # type: ignore[arg-type]
    )  # fmt: skip
    turn = Turn(input=asked, log=EventLog("r"), deadline=Deadline.after(60))
    turn.intent = pb.INTENT_CHAT
    turn.answer = pb.Answer(text=text)
    return turn


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize(("sentences", "unchecked"), [(24, 0), (30, 6)])
async def test_sentences_that_are_not_checked_are_counted(
    language: str, sentences: int, unchecked: int
) -> None:
    turn = _answered("".join(f"这是第{n}句。" for n in range(sentences)), language)
    # Without a collection nothing is looked up.
    outcome = await Verify(cast("Knowledge", None)).run(turn)
    assert turn.answer is not None
    assert len(turn.answer.support) == sentences - unchecked
    assert outcome.counts.get("unchecked", "0") == str(unchecked)
    told = [
        (one.kind, one.source, dict(one.metadata), str(unchecked) in one.message)
        for one in turn.degradations
    ]
    skipped = common_pb2.DEGRADATION_KIND_VERIFICATION_SKIPPED
    assert told == ([(skipped, "verify", {"unchecked": "6"}, True)] if unchecked else [])


@pytest.mark.parametrize(
    ("answer", "claims"),
    [
        ("1. 方法。[E1]\n2. 结果。\n\n---\n[E2]\n3.\n", ["1. 方法。[E1]", "2. 结果。"]),
        ("42.", ["42."]),
        ("---", []),
    ],
)
async def test_what_says_nothing_is_no_claim(answer: str, claims: list[str]) -> None:
    turn = _answered(answer, "zh")
    outcome = await Verify(cast("Knowledge", None)).run(turn)
    assert turn.answer is not None
    assert [answer[one.start : one.end] for one in turn.answer.support] == claims
    assert outcome.counts["sentences"] == str(len(claims))
