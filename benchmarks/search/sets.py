"""The labelled sets: texts, queries, relevance, scopes. Read where they lie, never copied.

`NIANLUN_BENCH_DATA` names the folder; by default the one beside the repository. Each query carries
a part: parameters were tuned on `dev`, results are reported on `test`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("NIANLUN_BENCH_DATA", Path(__file__).parents[3] / "shared" / "data"))
UNANSWERABLE = 5
"""Category of LoCoMo's questions that have no evidence."""


@dataclass(frozen=True)
class SetInfo:
    """A set, its recipe, and the best nDCG@10 of any plain method on its test part."""

    name: str
    recipe: str
    best_baseline: float
    grouped_by: str = ""
    """Field of the row that names its session; rows stand in order."""
    same_as: tuple[str, str] = ("", "")
    """(queries, corpus) of other sets, where this one only pairs them: vectors are shared."""
    scoped: bool = False


SETS = (
    SetInfo("cmrc2018_dev", "knowledge", 0.991),
    SetInfo("drcd_dev", "knowledge", 0.977),
    SetInfo("imtqa_zh", "knowledge", 0.762),
    SetInfo("locomo", "conversation", 0.544, "session", scoped=True),
    SetInfo("madial_zh", "conversation", 0.560),
    SetInfo("medqa_im_a", "knowledge", 0.333),
    SetInfo("memorybank_en", "conversation", 0.675, "date", scoped=True),
    SetInfo("memorybank_zh", "conversation", 0.786, "date", scoped=True),
    SetInfo("xquad_en", "knowledge", 0.983),
    SetInfo("xquad_en2zh", "knowledge", 0.853, same_as=("xquad_en", "xquad_zh")),
    SetInfo("xquad_zh", "knowledge", 0.978),
    SetInfo("xquad_zh2en", "knowledge", 0.822, same_as=("xquad_zh", "xquad_en")),
)


@dataclass(frozen=True)
class Row:
    """One document of a corpus. `row`: its place in the file, and in the vectors' file."""

    row: int
    id: str
    text: str
    scope: str
    group: str
    position: int


@dataclass(frozen=True)
class Query:
    """One question. `row`: its place in the file; `relevant`: ids of relevant documents."""

    row: int
    id: str
    text: str
    scope: str
    part: str
    relevant: frozenset[str]
    answers: tuple[str, ...] = ()


@dataclass(frozen=True)
class LabelledSet:
    """A set in memory. `queries`: only those with evidence."""

    info: SetInfo
    rows: tuple[Row, ...]
    queries: tuple[Query, ...]

    def scopes(self) -> dict[str, list[Row]]:
        """Rows by scope."""
        out: dict[str, list[Row]] = {}
        for row in self.rows:
            out.setdefault(row.scope, []).append(row)
        return out


def available() -> bool:
    """Whether the data lies where it is looked for."""
    return all((DATA / s.name / "queries.jsonl").is_file() for s in SETS)


def lines(name: str, file: str) -> Iterator[dict[str, Any]]:
    """Objects of a JSON Lines file of a set."""
    with (DATA / name / file).open(encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


def load(info: SetInfo) -> LabelledSet:
    """Reads a set."""
    rows: list[Row] = []
    counts: dict[str, int] = {}
    for number, entry in enumerate(lines(info.name, "corpus.jsonl")):
        meta = entry.get("meta", {})
        scope = str(meta.get("scope", "")) if info.scoped else ""
        group = f"{scope}/{meta[info.grouped_by]}" if info.grouped_by else ""
        counts[group] = counts.get(group, 0) + 1
        rows.append(Row(number, entry["id"], entry["text"], scope, group, counts[group]))
    known = {r.id for r in rows}
    relevant: dict[str, set[str]] = {}
    for entry in lines(info.name, "qrels.jsonl"):
        if entry["did"] in known:
            relevant.setdefault(entry["qid"], set()).add(entry["did"])
    queries: list[Query] = []
    for number, entry in enumerate(lines(info.name, "queries.jsonl")):
        meta = entry["meta"]
        if entry["id"] not in relevant or meta.get("category") == UNANSWERABLE:
            continue
        scope = str(meta.get("scope", "")) if info.scoped else ""
        queries.append(
            Query(
                number, entry["id"], entry["text"], scope, meta["part"],
                frozenset(relevant[entry["id"]]), tuple(meta.get("answers", ())),
            )
        )  # fmt: skip
    return LabelledSet(info, tuple(rows), tuple(queries))
