"""Answers without a model: the sentences of evidence that answer best, cited; or memory, quoted
and dated.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common.unicode import mixed
from services.orchestrator import sentences
from services.orchestrator.domain import LoadedMemory, Readings, TurnInput
from services.orchestrator.reasoner.recollect import recollect, wants_short
from services.orchestrator.reasoner.scoring import Scored, coverage
from services.orchestrator.router import is_question, is_recall
from services.orchestrator.titles import inline

_MARKUP = re.compile(
    r"^\s*(?:[#>*+-]+|\d+\.)\s+|[*`]{1,3}|(?<!\w)_{1,3}|_{1,3}(?!\w)|!?\[([^\[\]]*)\]\([^()]*\)"
)
_NOT_PROSE = re.compile(r"^\s*(?:```|\|?[-: |]{4,}\|?$|https?://\S+$|#{1,6}\s)")
# A line of its own: a heading, list item, table row, quote, code fence, rule, or several fields.
_OWN_LINE = re.compile(r"\s*(?:[#>|]|```|~~~|[-*+]\s|\d+[.)、]\s?|[-=_*]{3,}\s*$|\S+\s*[:：]\s)")
_ENDED = re.compile(r"[。！？；.!?:：;|]\s*$")
_WRAPPED_WIDTH = 50
_LEAST_COVERAGE = 0.1
_PRIOR_BONUS = 0.15
# The sentence that opens a passage says what it is about, often in other words than the question.
_LEAD_BONUS = 0.08
# Somebody who speaks of a person, or in sentences, tells; a bare term or number looks up.
_TELLS = mixed(r"[我你您他她咱]|[，。！；,!;]|\.\s|\b(?:i|i'm|my|we|our|you)\b", re.IGNORECASE)
_LOOKUP_CHARS = 40


@dataclass(frozen=True)
class _Candidate:
    text: str
    evidence: pb.Evidence
    heading: str
    leads: bool = False


def answer(
    turn: TurnInput,
    intent: pb.Intent.ValueType,
    memory: LoadedMemory,
    evidence: Sequence[pb.Evidence],
    readings: Readings,
    title: str,
) -> str:
    """The extractive answer; never empty."""
    if intent == pb.INTENT_PERSONALISED_SUMMARY:
        return _summary(turn, evidence, readings, title)
    recalled = recollect(turn, memory)
    if recalled and (is_recall(turn.message) or not evidence):
        return recalled
    limit = 2 if wants_short(memory) else 3
    asks = (
        is_question(turn.message)
        or intent == pb.INTENT_DOCUMENT_QUESTION
        or _is_lookup(turn.message)
    )
    found = passages(turn.message, evidence, limit) if asks else ""
    if found:
        return found
    return recalled or _nothing(turn)


def _is_lookup(message: str) -> bool:
    return len(message) <= _LOOKUP_CHARS and not _TELLS.search(message)


def passages(question: str, evidence: Sequence[pb.Evidence], limit: int) -> str:
    """The best `limit` sentences of the evidence, each with its citation; the top passage's first
    if none fits.
    """
    candidates = [c for item in evidence for c in _candidates(item)]
    if not candidates:
        return ""
    ranked = coverage(question, [f"{c.heading} {c.text}" for c in candidates])
    prior = {item.evidence_id: 1.0 / (rank + 1) for rank, item in enumerate(evidence)}

    def worth(one: Scored) -> float:
        candidate = candidates[one.index]
        lead = _LEAD_BONUS if candidate.leads else 0.0
        return one.score + lead + _PRIOR_BONUS * prior[candidate.evidence.evidence_id]

    ranked.sort(key=worth, reverse=True)
    chosen = [candidates[s.index] for s in ranked if s.score >= _LEAST_COVERAGE][:limit]
    if not chosen:
        chosen = candidates[:1]
    unique = {c.text: c for c in chosen}
    return "\n".join(f"{c.text} [{c.evidence.evidence_id}]" for c in unique.values())


def _candidates(item: pb.Evidence) -> list[_Candidate]:
    heading = f"{item.title} {item.section}"
    result: list[_Candidate] = []
    for sentence in sentences.split(_unwrapped(item.text)):
        if _NOT_PROSE.match(sentence.text):
            continue
        text = _plain(sentence.text)
        if len(text) >= 6:
            result.append(_Candidate(text[:400], item, heading, leads=not result))
    return result


def _width(line: str) -> int:
    """Columns of a line: a Chinese character takes two."""
    return len(line) + sum(c > "\u2e7f" for c in line)


def _unwrapped(text: str) -> str:
    """`text` with the line breaks taken out that only end a line of a wrapped paragraph."""
    lines = text.split("\n")
    out = [lines[0]]
    for before, line in itertools.pairwise(lines):
        wraps = (
            _width(before) >= _WRAPPED_WIDTH
            and not _ENDED.search(before)
            and line.strip()
            and not _OWN_LINE.match(before.lstrip("-*+> "))
            and not _OWN_LINE.match(line)
        )
        if not wraps:
            out.append(f"\n{line}")
            continue
        # Chinese has no space where the line broke.
        close = before.rstrip()[-1:] > "\u2e7f" or line.lstrip()[:1] > "\u2e7f"
        out.append(("" if close else " ") + line.strip())
    return "".join(out)


def _plain(text: str) -> str:
    stripped = _MARKUP.sub(lambda m: m.group(1) or "", text)
    return " ".join(stripped.replace("|", " ").split())


def _summary(
    turn: TurnInput, evidence: Sequence[pb.Evidence], readings: Readings, title: str
) -> str:
    zh = turn.language == "zh"
    if not evidence:
        return (
            "没有取得文档内容，无法总结。"
            if zh
            else "The document's text is not available; there is no summary."
        )
    points = []
    for item in evidence[:6]:
        candidates = _candidates(item)
        if candidates:
            points.append(f"- {candidates[0].text} [{item.evidence_id}]")
    title = inline(title)
    lines = [f"《{title}》要点：" if zh else f"Main points of “{title}”:", *points]
    if readings.similar:
        names = "、".join(f"《{inline(r.title)}》" for r in readings.similar)
        english = ", ".join(f"“{inline(r.title)}”" for r in readings.similar)
        lines.append(
            f"与你以前读过的{names}相近，可以对照着读。"
            if zh
            else f"Close to what you read earlier: {english}. Read them side by side."
        )
    elif readings.known and readings.earlier == 0:
        lines.append(
            "阅读建议：先看背景与问题，再看方法，最后核对结论。"
            if zh
            else "Where to begin: background and question, then the method, then the findings."
        )
    return "\n".join(lines)


def _nothing(turn: TurnInput) -> str:
    zh = turn.language == "zh"
    if is_question(turn.message):
        return "没有找到与问题有关的内容。" if zh else "I found nothing about this."
    if turn.save_turn and turn.user_id:
        return "好的，记下了。" if zh else "Noted."
    return "好的。" if zh else "All right."
