"""`python -m benchmarks.search`: quality and gate of the recipes, then speed in a second process.

Writes benchmarks/results/search.{json,md,svg}. QUICK=1 asks fewer questions; PARTS=quality or
PARTS=speed runs one half. The first run embeds all sets (minutes); vectors are kept.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from benchmarks.search import chunking, offtopic, quality, sets, spans, vectors
from benchmarks.search.quality import SetResult
from benchmarks.search.speed_report import RESULTS, machine

QUICK = bool(os.environ.get("QUICK"))
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
    figures = [
        *quality.figures(results), *offtopic.figures(gate), *chunking.figures(chunks),
        *spans.figures(found),
    ]  # fmt: skip
    document: dict[str, Any] = {
        "name": "search",
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": QUICK,
        "command": f"{'QUICK=1 ' if QUICK else ''}PARTS=quality python -m benchmarks.search",
        "machine": machine(),
        "versions": {p: version(p) for p in ("numpy", "openvino", "rank-bm25", "rjieba")},
        "figures": [
            {"name": n, "value": v, "limit": limit, "ok": ok} for n, v, limit, ok in figures
        ],
        "sets": quality.as_json(results),
        "chunks": chunking.as_json(chunks),
        "spans": spans.as_json(found),
        "gate": {"none_elsewhere": dict(gate.pairs), "refused_at_home": dict(gate.refused)},
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "search.json").write_text(json.dumps(document, indent=1))
    lines = [
        "# Search quality", "",
        f"{document['time']}; test halves{', a sample' if QUICK else ''}; one setting a recipe.",
        "", *quality.table(results), "", "## Gate", "", *offtopic.table(gate), "",
        "## Chunks", "", *spans.table(found), "",
    ]  # fmt: skip
    (RESULTS / "search.md").write_text("\n".join(lines))
    (RESULTS / "search.svg").write_text(_plot(results))
    for name, value, limit, ok in figures:
        print(f"figure {name} {value:.3f} {limit} {'ok' if ok else 'short'}")
    return 0 if all(ok for *_, ok in figures) else 1


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
