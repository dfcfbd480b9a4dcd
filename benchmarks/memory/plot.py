"""Figures of a memory run as bars (SVG), each group on a scale of its own, limits as marks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from benchmarks.report import Figure

_GROUPS: Final = (
    ("Recall of evidence", ("recall_",)),
    ("Latency in milliseconds", ("append_p95_ms", "load_p", "search_p", "digested_p95_ms")),
    ("Latency of peers in milliseconds", ("peer_mem0_search", "peer_langgraph_search",
                                          "peer_mem0_add_p95", "peer_langgraph_add_p95")),
    ("Writes per second", ("append_per_s", "peer_mem0_add_per_s", "peer_langgraph_add_per_s")),
    ("Updates: share of questions", ("update_",)),
)  # fmt: skip
_ROW: Final = 20
_LEFT: Final = 250
_WIDTH: Final = 380


def bars(figures: Sequence[Figure]) -> str | None:
    """The chart, None where no figure belongs to a group."""
    parts: list[str] = []
    y = 10
    for title, prefixes in _GROUPS:
        group = [f for f in figures if f.name.startswith(prefixes) and f.value == f.value]
        if not group:
            continue
        top = max(max(f.value, f.limit or 0.0) for f in group) or 1.0
        parts.append(f'<text x="0" y="{y + 14}" font-weight="bold">{escape(title)}</text>')
        y += 24
        for figure in group:
            parts += _bar(figure, y, top)
            y += _ROW
        y += 14
    if not parts:
        return None
    size = f'width="{_LEFT + _WIDTH + 80}" height="{y}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
        + "".join(parts)
        + "</svg>\n"
    )


def _bar(figure: Figure, y: int, top: float) -> list[str]:
    width = _WIDTH * figure.value / top
    colour = "#4a7" if figure.ok else "#c64"
    out = [
        f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(figure.name)}</text>',
        f'<rect x="{_LEFT}" y="{y + 3}" width="{width:.1f}" height="13" fill="{colour}"/>',
        f'<text x="{_LEFT + width + 5:.1f}" y="{y + 13}">{figure.value:.4g}</text>',
    ]
    if figure.limit:
        x = _LEFT + _WIDTH * figure.limit / top
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 18}" stroke="#333"/>')
    return out
