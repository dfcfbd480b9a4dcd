"""verify: each sentence of an answer against the evidence, through the same
search that found it.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common.errors import DomainError
from services.orchestrator import sentences
from services.orchestrator.engine import Failure, Outcome, skipped
from services.orchestrator.intents import INTENTS
from services.orchestrator.ports import Knowledge
from services.orchestrator.turn import Turn
from services.search.negation import negates
from services.search.tok import tokenize

_MARK = re.compile(r"\[E\d+\]")
_NUMBER = re.compile(r"\d+(?:\.\d+)?%?")
_SUPPORTED = 0.55
_MAX_SENTENCES = 24
_PARALLEL = 4


@dataclass(frozen=True)
class Verify:
    """Marks sentences that no passage supports. It changes no text."""

    knowledge: Knowledge

    async def run(self, turn: Turn) -> Outcome:
        """Fill `turn.answer.support`."""
        zh = turn.input.language == "zh"
        if not turn.input.verify or turn.answer is None:
            return skipped("未要求核对" if zh else "not asked for")
        if INTENTS[turn.intent].structured:
            return skipped(
                "结构化答案按 schema 校验" if zh else "structured answers are checked by schema"
            )
        found = _claims(turn.answer.text)
        gate = asyncio.Semaphore(_PARALLEL)
        verdicts = await asyncio.gather(
            *(self._check(turn, one, gate) for one in found[:_MAX_SENTENCES])
        )
        turn.answer.support.extend(verdicts)
        unsupported = sum(not one.supported for one in verdicts)
        counts = {"sentences": str(len(verdicts)), "unsupported": str(unsupported)}
        if unchecked := len(found) - len(verdicts):
            _degrade_unchecked(turn, unchecked)
            counts["unchecked"] = str(unchecked)
        return Outcome(counts=counts)

    async def fallback(self, turn: Turn, failure: Failure) -> Outcome:
        """The answer stands unchecked, and says so."""
        turn.degrade(
            common_pb2.DEGRADATION_KIND_VERIFICATION_SKIPPED,
            "verify",
            "the answer was not checked",
            reason=failure.reason,
        )
        return Outcome(status=pb.STEP_STATUS_FALLBACK, message=failure.message)

    async def _check(
        self, turn: Turn, sentence: sentences.Sentence, gate: asyncio.Semaphore
    ) -> pb.SentenceSupport:
        claim = _claim(sentence)
        passages = [(item.evidence_id, item.text) for item in turn.evidence]
        passages += [("", item.text) for item in turn.memory.items]
        best = _best(claim, passages)
        asked = turn.input
        if best[1] < _SUPPORTED and asked.use_retrieval and asked.collection_id and claim:
            async with gate:
                best = max(best, await self._searched(turn, claim), key=lambda pair: pair[1])
        return pb.SentenceSupport(
            start=sentence.start,
            end=sentence.end,
            supported=best[1] >= _SUPPORTED,
            evidence_id=best[0],
            score=best[1],
        )

    async def _searched(self, turn: Turn, claim: str) -> tuple[str, float]:
        try:
            found = await self.knowledge.search(turn.input, claim, 3)
        except DomainError as error:
            turn.degrade(
                common_pb2.DEGRADATION_KIND_VERIFICATION_SKIPPED,
                "verify",
                "a sentence could not be looked up",
                reason=error.reason,
            )
            return "", 0.0
        turn.report_all(found.degradations)
        return _best(claim, [("", item.text) for item in found.evidence])


def _claim(sentence: sentences.Sentence) -> str:
    return _MARK.sub("", sentence.text).strip()


def _claims(answer: str) -> list[sentences.Sentence]:
    """The sentences that say something: no rules, no numbers alone. An answer that is a number is a
    claim, too.
    """
    found = sentences.split(answer)
    said = [one for one in found if any(c.isalpha() for c in _claim(one))]
    return said or [one for one in found if any(c.isalnum() for c in _claim(one))]


def _degrade_unchecked(turn: Turn, count: int) -> None:
    zh = turn.input.language == "zh"
    turn.degrade(
        common_pb2.DEGRADATION_KIND_VERIFICATION_SKIPPED,
        "verify",
        f"答案较长：只核对了前 {_MAX_SENTENCES} 句，其余 {count} 句没有核对"
        if zh
        else f"a long answer: the first {_MAX_SENTENCES} sentences were checked, {count} were not",
        unchecked=str(count),
    )


def _best(claim: str, passages: list[tuple[str, str]]) -> tuple[str, float]:
    scored = [(evidence_id, support(claim, text)) for evidence_id, text in passages]
    return max(scored, key=lambda pair: pair[1], default=("", 0.0))


def support(claim: str, passage: str) -> float:
    """How far a passage supports a claim, 0 to 1: shared terms; a number or negation it lacks
    halves it.
    """
    wanted = set(tokenize(claim))
    if not wanted:
        return 1.0
    held = set(tokenize(passage))
    score = len(wanted & held) / len(wanted)
    missing_number = any(number not in passage for number in _NUMBER.findall(claim))
    negated_alone = negates(claim) and not negates(passage)
    return score * (0.5 if missing_number or negated_alone else 1.0)
