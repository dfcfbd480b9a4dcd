"""`python -m benchmarks.search.gatefit`: fits the shipped gate on development questions.

Every set's questions are put to their own corpus (answered) and to those of all sets that say other
things (unanswered); all sets, and all pairs of sets, weigh the same. The slopes of all evidence are
kept at or above 0: more evidence must never speak against a hit, whatever a sample says. The bias
is then moved until 4.5 % of the answered questions are refused. Prints the coefficients for
`services/search/calibration.py`, the shares on the same questions, and the shares of each family of
sets under a gate that was fitted without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.search import quality, vectors
from benchmarks.search.runner import Runner
from services.search import fitting, gate
from services.search.calibration import Calibration
from services.search.types import Evidence

_ANSWERED: Final = 100
_UNANSWERED: Final = 30
_REFUSED: Final = 0.045
_PULL: Final = 1e-3
# Sets that say the same in two languages; a question of one is answered by the other.
_FAMILY: Final = {
    "xquad_en": "xquad", "xquad_zh": "xquad", "xquad_en2zh": "xquad", "xquad_zh2en": "xquad",
    "memorybank_en": "memorybank", "memorybank_zh": "memorybank",
}  # fmt: skip
# Whole dialogues about moods and other people's chats: both are about days and feelings.
_CHATS: Final = frozenset({"locomo", "memorybank"})
_EVIDENCE: Final = ("dense", "late", "held", "lead", "coverage")
_OTHER: Final = ("length", "query_length")

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pair:
    """Questions of one set put to the corpus of another (or its own)."""

    asked: str
    held: str
    evidence: tuple[Evidence, ...]

    @property
    def answered(self) -> bool:
        """Whether the corpus is the questions' own."""
        return self.asked == self.held


def family(name: str) -> str:
    """The name under which sets that say the same are one."""
    return _FAMILY.get(name, name)


def unrelated(asked: str, held: str) -> bool:
    """Whether questions of one set have no answer in the other's corpus."""
    one, other = family(asked), family(held)
    return one != other and not (one == "madial_zh" and other in _CHATS)


def collect(runners: Mapping[str, Runner]) -> list[Pair]:
    """Evidence of the first hits for development questions, at home and elsewhere."""
    pairs: list[Pair] = []
    for name, runner in runners.items():
        for other, where in runners.items():
            if other != name and not unrelated(name, other):
                continue
            asked = runner.sample("dev", _ANSWERED if other == name else _UNANSWERED)
            seen = [runner.judge(q, where).evidence for q in asked]
            pairs.append(Pair(name, other, tuple(e for e in seen if e is not None)))
    return pairs


def _columns(evidence: Evidence, base: Calibration, late: bool) -> dict[str, float]:
    """Features with a slope of their own for each pair of languages."""
    found = gate.features(evidence, base)
    kinds = {
        "same": float(not (evidence.crosses or evidence.chinese)),
        "chinese": float(evidence.chinese),
        "crosses": float(evidence.crosses),
    }
    out = {f"{kind}": value for kind, value in kinds.items()}
    for name in _EVIDENCE:
        if name == "late" and not late:
            continue
        if name in ("held", "coverage"):
            out[name] = found[name]
        elif name == "lead":
            out["lead:crosses"] = kinds["crosses"] * found[name]
            out["lead"] = (1.0 - kinds["crosses"]) * found[name]
        else:
            out |= {f"{name}:{kind}": value * found[name] for kind, value in kinds.items()}
    for name in _OTHER:
        out[name] = found[name]
        out[f"{name}:crosses"] = kinds["crosses"] * found[name]
    return out


def fit(pairs: Sequence[Pair], base: Calibration, late: bool) -> dict[str, float]:
    """Coefficients of `gate.features` by name."""
    rows = [[_columns(e, base, late) for e in p.evidence] for p in pairs]
    names = list(rows[0][0])
    table = np.asarray([[c[n] for n in names] for one in rows for c in one], np.float64)
    labels = np.concatenate([np.full(len(p.evidence), float(p.answered)) for p in pairs])
    home = sum(p.answered for p in pairs)
    kinds = {True: home, False: len(pairs) - home}
    weights = [0.5 / len(p.evidence) / kinds[p.answered] for p in pairs]
    shares = np.repeat(weights, [len(p.evidence) for p in pairs]) * len(labels)
    free = list(range(len(names)))
    solved: Floats = np.zeros(len(names))
    while True:
        part = fitting.logistic(table[:, free], labels, shares, np.zeros(len(free)), _PULL)
        solved = np.zeros(len(names))
        solved[free] = part
        wrong = [n for n in free if solved[n] < 0.0 and names[n].split(":")[0] in _EVIDENCE]
        if not wrong:
            break
        free = [n for n in free if n not in wrong]
    named = _named(dict(zip(names, map(float, solved), strict=True)), late)
    return _moved(named, pairs, base, late)


def _named(solved: Mapping[str, float], late: bool) -> dict[str, float]:
    """From a slope per pair of languages to a common one and what is added to it."""
    out = {"bias": solved["same"]}
    for kind in ("crosses", "chinese"):
        out[kind] = solved[kind] - solved["same"]
    for name in ("dense", "late") if late else ("dense",):
        out[name] = solved[f"{name}:same"]
        for kind in ("crosses", "chinese"):
            out[f"{kind}_{name}"] = solved[f"{name}:{kind}"] - solved[f"{name}:same"]
    out["lead"], out["crosses_lead"] = solved["lead"], solved["lead:crosses"] - solved["lead"]
    out["held"], out["coverage"] = solved["held"], solved["coverage"]
    for name in _OTHER:
        out[name], out[f"crosses_{name}"] = solved[name], solved[f"{name}:crosses"]
    return out


def _moved(
    named: dict[str, float], pairs: Sequence[Pair], base: Calibration, late: bool
) -> dict[str, float]:
    """The bias moved so that the wanted share of the answered questions is refused."""
    low, high = -40.0, 40.0
    for _ in range(50):
        middle = (low + high) / 2
        tried = _with({**named, "bias": middle}, base, late)
        home = [none_share(p, tried, late) for p in pairs if p.answered]
        low, high = (middle, high) if float(np.mean(home)) > _REFUSED else (low, middle)
    return {name: round(value, 2) for name, value in {**named, "bias": high}.items() if value}


def _with(coefficients: Mapping[str, float], base: Calibration, late: bool) -> Calibration:
    if late:
        return replace(base, gate=coefficients)
    return replace(base, gate_plain=coefficients)


def none_share(pair: Pair, calibration: Calibration, late: bool) -> float:
    """Share of a pair's questions that are judged to have no answer."""
    seen = pair.evidence if late else [replace(e, rerank=None) for e in pair.evidence]
    none = [
        gate.relevance(e, calibration) < calibration.none_below and not gate.is_exact(e)
        for e in seen
    ]
    return sum(none) / len(none)


def main() -> int:
    """Fits both gates and shows how they do."""
    runners = quality.runners(vectors.Embedder())
    base = next(iter(runners.values())).calibration
    pairs = collect(runners)
    for late in (True, False):
        fitted = fit(pairs, base, late)
        print("gate" if late else "gate_plain", json.dumps(fitted))
        judged = _with(fitted, base, late)
        shares = {(p.asked, p.held): none_share(p, judged, late) for p in pairs}
        home = [v for (a, h), v in shares.items() if a == h]
        away = [v for (a, h), v in shares.items() if a != h]
        print(f"refused {np.mean(home):.3f} none elsewhere {np.mean(away):.3f}")
        print({f"{a} -> {h}": round(v, 2) for (a, h), v in shares.items() if a != h and v < 0.8})
    for name in sorted({family(p.asked) for p in pairs}):
        others = [p for p in pairs if name not in (family(p.asked), family(p.held))]
        judged = _with(fit(others, base, late=True), base, late=True)
        mine = [p for p in pairs if family(p.asked) == name]
        home = [none_share(p, judged, late=True) for p in mine if p.answered]
        away = [none_share(p, judged, late=True) for p in mine if not p.answered]
        print(f"without {name}: refused {np.mean(home):.3f} none elsewhere {np.mean(away):.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
