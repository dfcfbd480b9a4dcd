"""Off-topic: questions of one set against another set's corpus must find nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.report import Figure
from benchmarks.search.runner import Runner
from services.search.types import Confidence

NONE_AT_LEAST = 0.95
REFUSED_AT_MOST = 0.05

ELSEWHERE = {
    "cmrc2018_dev": ("medqa_im_a", "xquad_zh"),
    "drcd_dev": ("imtqa_zh", "memorybank_zh"),
    "imtqa_zh": ("xquad_zh", "medqa_im_a"),
    "locomo": ("xquad_en", "memorybank_en"),
    "madial_zh": ("medqa_im_a", "xquad_zh"),
    "medqa_im_a": ("cmrc2018_dev", "imtqa_zh"),
    "memorybank_en": ("xquad_en", "locomo"),
    "memorybank_zh": ("cmrc2018_dev", "medqa_im_a"),
    "xquad_en": ("locomo", "cmrc2018_dev"),
    "xquad_en2zh": ("medqa_im_a", "imtqa_zh"),
    "xquad_zh": ("medqa_im_a", "drcd_dev"),
    "xquad_zh2en": ("locomo", "memorybank_en"),
}
"""Whose corpora a set's questions are put to."""


@dataclass(frozen=True)
class GateResult:
    """Share of questions with confidence none: put elsewhere (wanted) and at home (refused)."""

    pairs: Mapping[str, float]
    refused: Mapping[str, float]

    @property
    def none_elsewhere(self) -> float:
        """Mean over pairs."""
        return sum(self.pairs.values()) / len(self.pairs)

    @property
    def refused_at_home(self) -> float:
        """Mean over sets."""
        return sum(self.refused.values()) / len(self.refused)


def measure(runners: Mapping[str, Runner], most: int) -> GateResult:
    """At most `most` test questions a set (0 = all)."""
    pairs: dict[str, float] = {}
    refused: dict[str, float] = {}
    for name, runner in runners.items():
        asked = runner.sample("test", most)
        own = [runner.judge(q, runner).confidence for q in asked]
        refused[name] = own.count(Confidence.NONE) / len(own)
        for other in ELSEWHERE[name]:
            found = [runner.judge(q, runners[other]).confidence for q in asked]
            pairs[f"{name} -> {other}"] = found.count(Confidence.NONE) / len(found)
    return GateResult(pairs, refused)


def figures(result: GateResult) -> list[Figure]:
    """(name, value, limit, met)."""
    none, refused = result.none_elsewhere, result.refused_at_home
    return [
        Figure("offtopic_none_share", none, NONE_AT_LEAST),
        Figure("intopic_refused_share", refused, REFUSED_AT_MOST, higher=False),
    ]


def table(result: GateResult) -> list[str]:
    """Markdown rows."""
    out = ["| questions -> corpus | confidence none |", "|---|---|"]
    out += [f"| {pair} | {share:.2f} |" for pair, share in result.pairs.items()]
    out += ["", "| at home | refused |", "|---|---|"]
    return out + [f"| {name} | {share:.2f} |" for name, share in result.refused.items()]
