"""Figures, JSON, Markdown and plots of the speed bench."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.report import Figure, Report

NAME = "search-speed"
_COLOURS = ("#0b6e4f", "#c84c09", "#3d5a80", "#8d6a9f", "#6b705c")


def figures(results: dict[str, Any]) -> list[Figure]:
    """Every figure that was measured."""
    out: list[Figure] = []

    def most(name: str, value: float, limit: float | None = None) -> None:
        out.append(Figure(name, value, limit, higher=False))

    for one in results["one_scope"]:
        size = one["size"]
        best = one.get("hnsw") or one["exact"]
        most(f"search_p50_ms_{size}", best["search"]["p50"])
        most(f"search_p95_ms_{size}", best["search"]["p95"])
        most(f"lexical_p50_ms_{size}", best["lexical"]["p50"], 3.0 if size == 50_000 else None)
        limit = {10_000: 5.0, 1_000_000: 10.0}.get(size)
        most(f"dense_p50_ms_{size}", best["dense_alone"]["p50"], limit)
        out.append(Figure(f"dense_recall20_{size}", best["recall20"], 0.98))
        most(f"lexical_log_20kb_ms_{size}", one["log_query_ms"], 200.0)
        most(f"index_mb_{size}", _bytes(one) / 2**20)
        most(f"retriever_memory_mb_{size}", one["memory_mb"]["retriever"])
    for one in results["many_scopes"]:
        for part in ("p50", "p95"):
            name = f"search_{part}_ms_{one['scopes']}_scopes_{one['size']}"
            most(name, one["search"][part])
    out.append(Figure("ingestion_chunks_per_s", results["ingestion"]["rate"]))
    return out


def _bytes(one: dict[str, Any]) -> int:
    """All tables with their indexes; HNSW indexes are counted within `vectors`."""
    return sum(size for name, size in one["bytes"].items() if name != "hnsw")


def write(results: dict[str, Any]) -> int:
    """Writes the files, prints the figures; 1 where one is short."""
    report = Report(NAME, "benchmarks.search.speed")
    report.add(figures(results))
    report.details |= results
    report.text += _text(results)
    report.write(_growth(results["one_scope"]))
    return 0 if report.ok else 1


def _text(results: dict[str, Any]) -> list[str]:
    lines = [
        (
            f"PostgreSQL with {results['postgres']['shared_buffers']} of cache. Milliseconds; the"
            " question's embedding apart. Memory: the retriever's process, and all of PostgreSQL's."
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
    return [*lines, "", f"Ingestion without embedding: {done['rate']:.0f} chunks/s."]


def _growth(rows: Sequence[dict[str, Any]]) -> str:
    """Cost of a query against corpus size, both logarithmic."""
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
