"""Quality of the shipped recipes beside BM25 alone, dense alone and RRF, on every set."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.report import Figure
from benchmarks.search import metrics, sets, vectors
from benchmarks.search.metrics import Metrics
from benchmarks.search.runner import Runner

METHODS = ("bm25", "dense", "rrf", "nianlun")
MEAN_GAIN = 2.0
HARD_GAIN = 3.0
WORST = -0.5
HARD = frozenset({"locomo", "madial_zh", "xquad_en2zh", "xquad_zh2en"})


@dataclass(frozen=True)
class SetResult:
    """Metrics by method on one set's queries, and milliseconds a query (all methods together)."""

    name: str
    recipe: str
    queries: int
    methods: dict[str, Metrics]
    best_baseline: float
    ms: float

    @property
    def gain(self) -> float:
        """Points of nDCG@10 over the best plain method."""
        return 100.0 * (self.methods["nianlun"].ndcg10 - self.best_baseline)


def runners(embedder: vectors.Embedder) -> dict[str, Runner]:
    """All sets, embedded and indexed."""
    out: dict[str, Runner] = {}
    for info in sets.SETS:
        one = sets.load(info)
        queries, documents = vectors.of_set(embedder, one)
        out[info.name] = Runner(one, queries, documents)
    return out


def measure(runner: Runner, part: str, most: int) -> SetResult:
    """Metrics on at most `most` queries of a part (0 = all), evenly spread over the file."""
    asked = runner.sample(part, most)
    found: dict[str, list[Metrics]] = {m: [] for m in METHODS}
    start = time.perf_counter()
    for query in asked:
        for method, ranked in runner.rankings(query).items():
            found[method].append(metrics.of_query(ranked, query.relevant))
    spent = time.perf_counter() - start
    info = runner.set.info
    return SetResult(
        info.name,
        info.recipe,
        len(asked),
        {m: metrics.mean(v) for m, v in found.items()},
        info.best_baseline,
        1000.0 * spent / max(1, len(asked)),
    )


def figures(results: list[SetResult]) -> list[Figure]:
    """(name, value, limit, met) of what the recipes have to reach."""
    mean_gain = sum(r.gain for r in results) / len(results)
    out = [Figure("quality_mean_gain_points", mean_gain, MEAN_GAIN)]
    for result in results:
        limit = HARD_GAIN if result.name in HARD else WORST
        out.append(Figure(f"quality_gain_{result.name}_points", result.gain, limit))
    return out


def as_json(results: list[SetResult]) -> list[dict[str, Any]]:
    """For the results file."""
    return [{**asdict(r), "gain_points": r.gain} for r in results]


def table(results: list[SetResult]) -> list[str]:
    """Markdown rows."""
    out = [
        "| set | recipe | queries | method | R@1 | R@5 | R@10 | MRR@10 | nDCG@10 | gain |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        for method, m in r.methods.items():
            gain = f"{r.gain:+.1f}" if method == "nianlun" else ""
            numbers = " | ".join(f"{v:.3f}" for v in asdict(m).values())
            out.append(f"| {r.name} | {r.recipe} | {r.queries} | {method} | {numbers} | {gain} |")
    return out
