"""Figures, JSON, Markdown and plots of the speed bench."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path("benchmarks/results")
NAME = "search-speed"
_COLOURS = ("#0b6e4f", "#c84c09", "#3d5a80", "#8d6a9f", "#6b705c")


def figures(results: dict[str, Any]) -> list[tuple[str, float, str, bool]]:
    """(name, value, limit, ok) of every figure that was measured."""
    out: list[tuple[str, float, str, bool]] = []

    def add(name: str, value: float, limit: float | None, *, most: bool = True) -> None:
        if limit is None:
            out.append((name, value, "-", True))
        else:
            ok = value <= limit if most else value >= limit
            out.append((name, value, f"{'<=' if most else '>='}{limit:g}", ok))

    for one in results["one_scope"]:
        size = one["size"]
        best = one.get("hnsw") or one["exact"]
        add(f"search_p50_ms_{size}", best["search"]["p50"], None)
        add(f"search_p95_ms_{size}", best["search"]["p95"], None)
        add(f"lexical_p50_ms_{size}", best["lexical"]["p50"], 3.0 if size == 50_000 else None)
        limit = {10_000: 5.0, 1_000_000: 10.0}.get(size)
        add(f"dense_p50_ms_{size}", best["dense_alone"]["p50"], limit)
        add(f"dense_recall20_{size}", best["recall20"], 0.98, most=False)
        add(f"lexical_log_20kb_ms_{size}", one["log_query_ms"], 200.0)
        add(f"index_mb_{size}", _bytes(one) / 2**20, None)
        add(f"retriever_memory_mb_{size}", one["memory_mb"]["retriever"], None)
    for one in results["many_scopes"]:
        for part in ("p50", "p95"):
            name = f"search_{part}_ms_{one['scopes']}_scopes_{one['size']}"
            add(name, one["search"][part], None)
    add("ingestion_chunks_per_s", results["ingestion"]["rate"], None)
    return out


def _bytes(one: dict[str, Any]) -> int:
    """All tables with their indexes; HNSW indexes are counted within `vectors`."""
    return sum(size for name, size in one["bytes"].items() if name != "hnsw")


def write(results: dict[str, Any], *, quick: bool) -> int:
    """Writes the files, prints the figures; 1 where one is short."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    found = figures(results)
    document = {
        "name": NAME,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "command": f"{'QUICK=1 ' if quick else ''}python -m benchmarks.search.speed",
        "machine": machine(),
        "versions": {
            p: version(p) for p in ("numpy", "psycopg", "pgvector", "rank-bm25", "grpcio")
        },
        "figures": [{"name": n, "value": v, "limit": limit, "ok": ok} for n, v, limit, ok in found],
        "results": results,
    }
    (RESULTS / f"{NAME}.json").write_text(json.dumps(document, indent=1, default=float))
    (RESULTS / f"{NAME}.md").write_text(_markdown(document, results))
    (RESULTS / f"{NAME}.svg").write_text(_growth(results["one_scope"]))
    for name, value, limit, ok in found:
        print(f"figure {name} {value:.3f} {limit} {'ok' if ok else 'short'}")
    return 0 if all(ok for *_, ok in found) else 1


def machine() -> dict[str, Any]:
    """What it ran on."""
    return {
        "cpus": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "load": [round(x, 1) for x in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _markdown(document: dict[str, Any], results: dict[str, Any]) -> str:
    machine_ = document["machine"]
    lines = [
        "# Speed of the retriever",
        "",
        (
            f"{document['time']}, {machine_['cpus']} CPUs, load {machine_['load'][0]};"
            f" PostgreSQL with {results['postgres']['shared_buffers']} of cache."
        ),
        (
            "Milliseconds; the question's embedding apart. Memory: the retriever's process, and"
            " all of PostgreSQL's."
        ),
        "",
        (
            "| chunks | method | search p50 | p95 | lexical p50 | dense p50 | recall@20 | tables MB"
            " | HNSW MB | build s | retriever MB | PostgreSQL MB |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in results["one_scope"]:
        hnsw = one["bytes"]["hnsw"] / 2**20
        size = _bytes(one) / 2**20 - hnsw
        rest = (
            f"| {size:.0f} | {hnsw:.0f} | {one.get('index', {}).get('build_s', 0.0):.0f}"
            f" | {one['memory_mb']['retriever']:.0f} | {one['memory_mb']['postgres']:.0f} |"
        )
        for method in ("exact", "hnsw"):
            if method in one:
                m = one[method]
                lines.append(
                    f"| {one['size']:,} | {method} | {m['search']['p50']:.1f}"
                    f" | {m['search']['p95']:.1f} | {m['lexical']['p50']:.2f}"
                    f" | {m['dense_alone']['p50']:.2f} | {m['recall20']:.3f} {rest}"
                )
    lines += ["", "| chunks | peer | p50 | p95 | build s |", "|---|---|---|---|---|"]
    for one in results["one_scope"]:
        for name, peer in one["peers"].items():
            if "skipped" in peer:
                lines.append(f"| {one['size']:,} | {name} | {peer['skipped']} | | |")
            else:
                lines.append(
                    f"| {one['size']:,} | {name} | {peer['p50']:.1f} | {peer['p95']:.1f}"
                    f" | {peer.get('build_s', 0):.1f} |"
                )
    lines += ["", "| chunks | collections | search p50 | p95 |", "|---|---|---|---|"]
    lines += [
        f"| {o['size']:,} | {o['scopes']:,} | {o['search']['p50']:.1f} | {o['search']['p95']:.1f} |"
        for o in results["many_scopes"]
    ]
    done = results["ingestion"]
    lines += ["", f"Ingestion without embedding: {done['rate']:.0f} chunks/s.", ""]
    return "\n".join(lines)


def _growth(rows: Sequence[dict[str, Any]]) -> str:
    """Cost of a query against corpus size, both logarithmic."""
    import math

    series: dict[str, list[tuple[float, float]]] = {}
    for one in rows:
        best = one.get("hnsw") or one["exact"]
        for name, value in (
            ("search", best["search"]["p50"]),
            ("lexical leg", best["lexical"]["p50"]),
            ("dense leg", best["dense_alone"]["p50"]),
        ):
            series.setdefault(name, []).append((one["size"], value))
        for name, peer in one["peers"].items():
            if "p50" in peer:
                series.setdefault(name, []).append((one["size"], peer["p50"]))
    xs = [x for points in series.values() for x, _ in points]
    ys = [max(y, 0.05) for points in series.values() for _, y in points]
    low_x, high_x = math.log10(min(xs)), math.log10(max(xs)) + 1e-9
    low_y, high_y = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - low_x) / max(high_x - low_x, 1e-9)
        up = (math.log10(max(y, 0.05)) - low_y) / max(high_y - low_y, 1)
        return 70 + 480 * across, 330 - 290 * up

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 380" font-size="12">',
        '<rect width="760" height="380" fill="white"/>',
    ]
    for power in range(low_y, high_y + 1):
        _, y = place(min(xs), 10.0**power)
        parts.append(
            f'<line x1="70" x2="550" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>'
            f'<text x="62" y="{y + 4:.0f}" text-anchor="end">{10.0**power:g} ms</text>'
        )
    for x in sorted(set(xs)):
        at, _ = place(x, 1.0)
        parts.append(f'<text x="{at:.0f}" y="350" text-anchor="middle">{int(x):,}</text>')
    for number, (name, points) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in (place(x, y) for x, y in points))
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            f'<text x="570" y="{50 + 20 * number}" fill="{colour}">{name}</text>'
        )
    parts.append('<text x="310" y="372" text-anchor="middle">chunks in the collection</text></svg>')
    return "".join(parts)
