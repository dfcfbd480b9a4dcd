"""`python -m tools.docs.measured`: renews the tables in `docs/` that say what was measured.

A page holds a table between `<!-- measured:NAME:begin -->` and `<!-- measured:NAME:end -->`; it is
made from `benchmarks/results/*.json`, so that a figure stands in one place.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "benchmarks/results"
PAGES: Final = ("docs/embedder.md", "docs/search.md", "docs/zh/search.md")

_BLOCK: Final = re.compile(
    r"(<!-- measured:(?P<name>[a-z-]+):begin -->\n).*?(<!-- measured:(?P=name):end -->)", re.DOTALL
)
# Pairs and sets that are far from the mean are named one by one.
_PAIR_BELOW: Final = 0.9
_SET_ABOVE: Final = 0.1


class UnknownTable(Exception):
    """A page asks for a table that nothing makes; the text is its name."""


def merged(text: str, results: Path = RESULTS) -> str:
    """`text` with every table between its marks renewed. Raises UnknownTable."""

    def renewed(found: re.Match[str]) -> str:
        make = _TABLES.get(found["name"])
        if make is None:
            raise UnknownTable(found["name"])
        return f"{found[1]}{make(results)}\n{found[3]}"

    return _BLOCK.sub(renewed, text)


def _read(results: Path, name: str) -> Mapping[str, Any]:
    read: Mapping[str, Any] = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    return read


def _gate(results: Path, words: Mapping[str, str]) -> str:
    measured = _read(results, "search")
    gate = measured.get("details", measured)["gate"]
    limits = {figure["name"]: figure for figure in measured["figures"]}
    return "\n".join(
        [
            f"| {words['asked']} | {words['share']} | {words['aim']} |",
            "|---|---|---|",
            *_rows(gate["none_elsewhere"], limits["offtopic_none_share"], words, wanted=True),
            *_rows(gate["refused_at_home"], limits["intopic_refused_share"], words, wanted=False),
        ]
    )


def _rows(
    shares: Mapping[str, float],
    figure: Mapping[str, Any],
    words: Mapping[str, str],
    *,
    wanted: bool,
) -> Iterator[str]:
    """The mean with its aim, then what is far from it, worst first."""
    kind = "elsewhere" if wanted else "home"
    aim = re.sub(r"[^0-9.]", "", str(figure["limit"]))
    verdict = words["ok"] if figure["ok"] else words["short"]
    bound = words["at least"] if wanted else words["at most"]
    yield (
        f"| {words[kind].format(n=len(shares))} | {_percent(figure['value'])} "
        f"| {bound.format(n=_percent(float(aim)))}{words['stop']}{verdict} |"
    )
    for name, share in sorted(shares.items(), key=lambda one: one[1], reverse=not wanted):
        if share < _PAIR_BELOW if wanted else share > _SET_ABOVE:
            shown = f"`{name}`" if not wanted else " → ".join(f"`{x}`" for x in name.split(" -> "))
            yield f"| {words[f'{kind} one'].format(name=shown)} | {_percent(share)} | |"


def _engines(results: Path) -> str:
    measured = _read(results, "embed")
    rates, machine = measured["details"]["default model texts/s"], measured["machine"]
    on = ", ".join(str(each) for each in (machine.get("cpu"), f"{machine['cores']} cores") if each)
    rows = [f"| engine ({on}) | short texts/s | long texts/s |", "|---|---|---|"]
    for name, engine in (
        ("wheel", "the wheel's own (4-bit weights, 8-bit activations)"),
        ("graph", "OpenVINO, without padding (the default)"),
    ):
        rows.append(f"| {engine} | {rates[f'{name} short']:.3g} | {rates[f'{name} long']:.3g} |")
    return "\n".join(rows)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


_ENGLISH: Final = {
    "asked": "test questions",
    "share": "share",
    "aim": "aim",
    "elsewhere": "put to another set's corpus: nothing is shown (mean of {n} pairs)",
    "elsewhere one": "of these, {name}",
    "home": "put to their own corpus: refused (mean of {n} sets)",
    "home one": "of these, {name}",
    "at least": "at least {n}",
    "at most": "at most {n}",
    "stop": ": ",
    "ok": "kept",
    "short": "**short**",
}
_CHINESE: Final = {
    "asked": "测试问题",
    "share": "占比",
    "aim": "目标",
    "elsewhere": "拿去问别的数据集：一条都不返回（{n} 对的平均）",
    "elsewhere one": "其中 {name}",
    "home": "问自己的数据集：被拒（{n} 个数据集的平均）",
    "home one": "其中 {name}",
    "at least": "至少 {n}",
    "at most": "至多 {n}",
    "stop": "，",
    "ok": "达到",
    "short": "**未达到**",
}
_TABLES: Final[Mapping[str, Callable[[Path], str]]] = {
    "engines": _engines,
    "gate": lambda results: _gate(results, _ENGLISH),
    "gate-zh": lambda results: _gate(results, _CHINESE),
}


def main() -> None:
    """Renew the tables of all pages."""
    for name in PAGES:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        path.write_text(merged(text), encoding="utf-8")
        sys.stdout.write(f"wrote {name}\n")


if __name__ == "__main__":
    main()
