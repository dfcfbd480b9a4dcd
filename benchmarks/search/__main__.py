"""`python -m benchmarks.search`: quality and gate of the recipes, then speed in a second process.

Writes benchmarks/results/search.{json,md,svg}. QUICK=1 asks fewer questions; PARTS=quality or
PARTS=speed runs one half. The first run embeds all sets (minutes); vectors are kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.report import QUICK, Report
from benchmarks.search import chunking, offtopic, quality, sets, spans, vectors
from benchmarks.search.quality import SetResult

PARTS = os.environ.get("PARTS", "quality,speed").split(",")
_QUICK_QUERIES = 60
_QUICK_GATE = 15
_GATE = 120
_BAR = 16
_LONG = ("xquad_en", "cmrc2018_dev")
_CHUNK_QUESTIONS = 150


def run_quality() -> int:
    """Measures, writes, prints the figures; 1 where one is short."""
    if not sets.available():
        print(f"no labelled sets in {sets.DATA}; NIANLUN_BENCH_DATA names the folder")
        return 1
    embedder = vectors.Embedder()
    runners = quality.runners(embedder)
    results = [quality.measure(r, "test", _QUICK_QUERIES if QUICK else 0) for r in runners.values()]
    gate = offtopic.measure(runners, _QUICK_GATE if QUICK else _GATE)
    # English in a quick run; both languages otherwise.
    long_ones = _LONG[:1] if QUICK else _LONG
    chunks = [chunking.measure(n, embedder, _CHUNK_QUESTIONS) for n in long_ones]
    # Embedding 1.4 million characters takes minutes; later runs find the vectors.
    found = spans.measure(embedder, "test", _QUICK_QUERIES if QUICK else 0)
    report = Report("search", "benchmarks.search")
    report.add(quality.figures(results))
    report.add(offtopic.figures(gate))
    report.add(chunking.figures(chunks))
    report.add(spans.figures(found))
    report.details |= {
        "sets": quality.as_json(results),
        "chunks": chunking.as_json(chunks),
        "spans": spans.as_json(found),
        "gate": {"none_elsewhere": dict(gate.pairs), "refused_at_home": dict(gate.refused)},
    }
    report.text += [
        f"Test halves{', a sample' if QUICK else ''}; one setting a recipe.", "",
        *quality.table(results), "", "## Gate", "", *offtopic.table(gate), "", "## Chunks", "",
        *spans.table(found),
    ]  # fmt: skip
    report.write(_plot(results))
    return 0 if report.ok else 1


def _plot(results: Sequence[SetResult]) -> str:
    """nDCG@10 by set and method as bars."""
    colours = {"bm25": "#c9ada7", "dense": "#9a8c98", "rrf": "#4a4e69", "nianlun": "#0b6e4f"}
    parts: list[str] = []
    top = 20
    for result in results:
        parts.append(f'<text x="4" y="{top + 2 * _BAR}">{result.name}</text>')
        for row, (method, found) in enumerate(result.methods.items()):
            y, width = top + row * _BAR, 420 * found.ndcg10
            parts.append(
                f'<rect x="120" y="{y}" width="{width:.1f}" height="{_BAR - 3}"'
                f' fill="{colours[method]}"/><text x="{126 + width:.1f}" y="{y + 11}">'
                f"{method} {found.ndcg10:.3f}</text>"
            )
        top += len(result.methods) * _BAR + 10
    style = 'font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="660" height="{top}" {style}>'
    return head + "".join(parts) + "</svg>\n"


def main() -> int:
    """Both halves; speed in its own process, so that one does not disturb the other's memory."""
    code = run_quality() if "quality" in PARTS else 0
    if "speed" in PARTS:
        done = subprocess.run([sys.executable, "-m", "benchmarks.search.speed"], check=False)
        code = code or done.returncode
    return code


if __name__ == "__main__":
    sys.exit(main())
