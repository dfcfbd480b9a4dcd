"""The page of measurements, from `benchmarks/results/*.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_INTRODUCTION: Final = (
    "What `make bench` wrote last. A figure is *ok* when it keeps its limit, *short* when it does"
    " not; without a limit it is only reported. Figures of a machine under load, or of a quick run,"
    " say little about another one: each section names its own."
)


def page(results: Path) -> str:
    """All measurements, one section a file, with the machine that each was made on."""
    parts = [
        "# Benchmarks",
        _INTRODUCTION,
    ]
    found = {
        path: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(results.glob("*.json"))
    }
    parts += _short(list(found.values()))
    for path, measured in found.items():
        parts += _section(path, measured)
    return "\n\n".join(parts) + "\n"


def images(results: Path) -> list[Path]:
    """The plots beside the figures."""
    return sorted(results.glob("*.svg"))


def _short(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What is short of its limit, of all benchmarks, before anything else."""
    yield "## Short of the limit"
    rows = ["| benchmark | figure | value | limit |", "|---|---|---|---|"]
    for measured in found:
        name = f"[{measured['name']}](#{measured['name']})"
        run = ", a quick run" if measured.get("quick") else ""
        for figure in measured["figures"]:
            if figure.get("limit") is not None and not figure["ok"]:
                shown = str(figure["name"]).replace("|", "\\|")
                value, limit = _number(figure["value"]), _number(figure["limit"])
                rows.append(f"| {name}{run} | {shown} | {value} | {limit} |")
    yield "\n".join(rows) if len(rows) > 2 else "Nothing: every figure keeps its limit."


def _section(path: Path, measured: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {measured['name']}"
    yield _made_by(measured)
    rows = ["| figure | value | limit | |", "|---|---|---|---|"]
    for figure in measured["figures"]:
        limit = figure.get("limit")
        verdict = "" if limit is None else ("ok" if figure["ok"] else "short")
        shown = "" if limit is None else _number(limit)
        name = str(figure["name"]).replace("|", "\\|")
        rows.append(f"| {name} | {_number(figure['value'])} | {shown} | {verdict} |")
    yield "\n".join(rows)
    plot = path.with_suffix(".svg")
    if plot.exists():
        yield f"![{measured['name']}](images/benchmarks/{plot.name})"


def _made_by(measured: Mapping[str, Any]) -> str:
    machine = measured.get("machine", {})
    parts = [f"`{measured['command']}`"]
    if measured.get("quick"):
        parts.append("a quick run")
    if "cores" in machine:
        parts.append(f"{machine['cores']} cores")
    if "load_1min" in machine:
        parts.append(f"load {_number(machine['load_1min'])} at the start")
    parts += [str(machine[name]) for name in ("cpu", "gpu", "system") if machine.get(name)]
    commit = measured.get("versions", {}).get("commit")
    if commit:
        parts.append(f"commit {commit}")
    return ", ".join(parts) + "."


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
