"""Recall of evidence on the conversation sets, through memory's own ranking of turns.

Every conversation or user is one scope; its rows are turns with their terms and the default model's
vectors. Tuned on the `dev` parts, reported on `test`; limits are the best plain method on the same
queries. Questions that ask for a date stand apart too. Late interaction over the compressed token
vectors takes part, as in the service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from benchmarks.report import Report
from benchmarks.search import sets, vectors
from benchmarks.search.sets import LabelledSet, Query, Row
from services.memory import recall
from services.memory.domain import Message, Role, Turn
from services.memory.index import UserIndex, of_turns
from services.memory.vectors import ItemVectors, PackedTokens, Question
from services.search import tokenize
from services.search.calibration import DEFAULT_MODEL

# (R@5, R@10) of the best plain method per set.
BASELINES: Final = {
    "locomo": (0.606, 0.672),
    "madial_zh": (0.552, 0.647),
    "memorybank_en": (0.796, 0.889),
    "memorybank_zh": (0.8888, 0.9777),
}
_DATE_CATEGORY: Final = 2
_SAID: Final = datetime(2024, 1, 1, tzinfo=UTC)


def _turn(row: Row) -> Turn:
    message = Message(Role.USER, row.text)
    return Turn(row.id, "u", row.group, row.position, (message,), _SAID)


def indexes(one: LabelledSet, embedded: vectors.Embedded) -> dict[str, UserIndex]:
    """One index a scope, as the service builds it for a user."""
    out = {}
    codec = vectors.codec().name
    for scope, rows in one.scopes().items():
        known = {
            r.id: ItemVectors(embedded.dense[r.row], PackedTokens(codec, embedded.packed(r.row)))
            for r in rows
        }
        out[scope] = of_turns(
            (1,), DEFAULT_MODEL, [(_turn(r), tokenize(r.text)) for r in rows], known
        )
    return out


def question(asked: vectors.Embedded, row: int) -> Question:
    """A query as the embedder answers it."""
    codec = vectors.codec()
    tokens = asked.question(row, codec.dimensions)
    return Question(DEFAULT_MODEL, asked.dense[row], codec.name, tokens)


def found(index: UserIndex, query: Query, asked: Question) -> list[str]:
    """Ids of the ten best turns, ungated."""
    result = recall.search(
        query.text, asked, index, recall.turns_recipe(10), recall.Scope(), _SAID, "UTC", 0.0
    )
    return [r.item_id for r in (result.hits + result.below)[:10]]


def share(ranked: Sequence[tuple[Query, list[str]]], k: int) -> float:
    """Mean share of the relevant turns among the first k."""
    return sum(len(q.relevant & set(ids[:k])) / len(q.relevant) for q, ids in ranked) / len(ranked)


def run(report: Report) -> None:
    """All conversation sets; skipped where the data does not lie."""
    if not sets.available():
        print("the labelled sets are not there (NIANLUN_BENCH_DATA): recall is skipped")
        return
    embedder = vectors.Embedder()
    for info in sets.SETS:
        if info.recipe != "conversation":
            continue
        one = sets.load(info)
        asked, held = vectors.of_set(embedder, one)
        by_scope = indexes(one, held)
        ranked = [
            (q, found(by_scope[q.scope], q, question(asked, q.row)))
            for q in one.queries
            if q.part == "test"
        ]
        for k, limit in zip((5, 10), BASELINES[info.name], strict=True):
            name = f"recall_{info.name}_at_{k}"
            report.figure(name, share(ranked, k), limit)
        dates = _apart(info.name, ranked, lambda c: c == _DATE_CATEGORY)
        if dates:
            figure = share(dates, 10)
            report.figure(f"recall_{info.name}_dates_at_10", figure)
        report.details[f"recall_{info.name}"] = {"queries": len(ranked), "dates": len(dates)}


def _apart(
    name: str, ranked: Sequence[tuple[Query, list[str]]], wanted: Callable[[object], bool]
) -> list[tuple[Query, list[str]]]:
    categories = {e["id"]: e["meta"].get("category") for e in sets.lines(name, "queries.jsonl")}
    return [(q, ids) for q, ids in ranked if wanted(categories.get(q.id))]
