"""Half emoji, inline thinking, citations, sentences."""

from __future__ import annotations

import pytest

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator import citations, sentences
from services.orchestrator.reasoner.pieces import SurrogateJoiner, ThinkSplitter, clean

EVIDENCE = [pb.Evidence(evidence_id="E1", text="一"), pb.Evidence(evidence_id="E2", text="二")]


def test_half_an_emoji_waits_for_its_other_half() -> None:
    joiner = SurrogateJoiner()
    assert joiner.feed("树\ud83c") == "树"
    assert joiner.feed("\udf33好") == "🌳好"
    assert joiner.flush() == ""
    assert joiner.feed("x\ud83c") == "x"
    assert joiner.flush() == "\ufffd"
    assert clean("a\udf33b\x00") == "a\ufffdb"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    ("said", "thinking", "text"),
    [
        ("<think>想</think>\n\n答", "想", "答"),
        ("  <think>a<b</think>c", "a<b", "c"),
        ("没有标签 <think>x</think>", "", "没有标签 <think>x</think>"),
        ("<thin ice", "", "<thin ice"),
        ("<think>没完", "没完", ""),
    ],
)
def test_thinking_at_the_start_is_told_apart(
    said: str, thinking: str, text: str, size: int
) -> None:
    splitter = ThinkSplitter()
    seen = [splitter.feed(said[i : i + size]) for i in range(0, len(said), size)]
    seen.append(splitter.flush())
    assert "".join(one[0] for one in seen) == thinking
    assert "".join(one[1] for one in seen) == text


def test_citations_are_checked_and_normalised() -> None:
    checked = citations.check("甲[E1，E9]。乙【e2】 丙 [E7]。", EVIDENCE)
    assert checked.text == "甲[E1]。乙[E2] 丙。"
    assert checked.dropped == ("E9", "E7")
    assert [c.evidence_id for c in checked.citations] == ["E1", "E2"]
    for one in checked.citations:
        assert checked.text[one.start : one.end] == f"[{one.evidence_id}]"


def test_sentences_keep_their_places_and_their_citations() -> None:
    text = "版本是 3.14。它很快！[E1]\nPython 3.11 is used. See e.g. docs [E2] now."
    found = sentences.split(text)
    assert found[0].text == "版本是 3.14。"
    assert found[1].text == "它很快！[E1]"
    assert found[2].text == "Python 3.11 is used."
    for one in found:
        assert text[one.start : one.end] == one.text
