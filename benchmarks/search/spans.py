"""Chunking judged by labelled spans: evidence characters within the same number of returned ones.

Five long documents (`chunkeval_en`) stand in one scope, read and cut as the retriever does it. A
question's evidence are exact character spans; what counts is their share within the first returned
characters, against packed chunks of 800 characters in the best of three plain methods
(BASELINES.md beside the sets).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Figure
from benchmarks.search import sets
from benchmarks.search.runner import Runner
from benchmarks.search.sets import LabelledSet, Query, Row, SetInfo
from benchmarks.search.vectors import Embedder
from services.embedder.model import InputType
from services.retriever import chunking
from services.retriever.reading import reader
from services.retriever.reading.blocks import Format, Source

NAME: Final = "chunkeval_en"
BASELINE: Final = {1: 0.575, 3: 0.787, 5: 0.859, 10: 0.931}
"""Share of the evidence in the first n chunks of 800 characters, RRF over BM25 and dense."""
_CHARACTERS: Final = 800
_SPANS: Final = Path(__file__).parent / "data" / "chunkeval_spans.json"
_TOP: Final = 40


@dataclass(frozen=True)
class Piece:
    """A chunk: characters [start, end) of a document."""

    document: str
    start: int
    end: int


@dataclass(frozen=True)
class SpanResult:
    """`found`: n -> mean share of a question's evidence in the first n x 800 characters.
    `precision`: the share of those first 4,000 characters that is evidence."""

    questions: int
    pieces: int
    found: dict[int, float]
    precision: float


def load_spans() -> dict[str, list[tuple[int, int]]]:
    """Question id -> evidence as [start, end) characters of the question's document."""
    spans = json.loads(_SPANS.read_text(encoding="utf-8"))["spans"]
    return {qid: [(start, end) for start, end in pairs] for qid, pairs in spans.items()}


def covered(pieces: Sequence[Piece], document: str, spans: Sequence[tuple[int, int]]) -> int:
    """Characters of the spans (united) that lie within the pieces of that document."""
    wanted = {c for start, end in spans for c in range(start, end)}
    held: set[int] = set()
    for piece in pieces:
        if piece.document == document:
            held.update(wanted.intersection(range(piece.start, piece.end)))
    return len(held)


def first_characters(pieces: Sequence[Piece], characters: int) -> list[Piece]:
    """The first pieces that fit into so many characters, the last one cut."""
    out: list[Piece] = []
    for piece in pieces:
        room = characters - sum(p.end - p.start for p in out)
        if room <= 0:
            break
        out.append(replace(piece, end=min(piece.end, piece.start + room)))
    return out


def _cut() -> tuple[list[Piece], list[str]]:
    """All pieces of the five documents, and what of each is embedded and indexed."""
    pieces: list[Piece] = []
    texts: list[str] = []
    for entry in sets.lines(NAME, "corpus.jsonl"):
        parsed = reader.read(Source(text=entry["text"], format=Format.MARKDOWN))
        if parsed.text != entry["text"]:
            raise ValueError(f"{entry['id']}: reading has moved the characters")
        for one in chunking.chunk(parsed.text, parsed.blocks):
            pieces.append(Piece(entry["id"], one.start, one.end))
            texts.append(one.indexed_text(""))
    return pieces, texts


def measure(embedder: Embedder, part: str, most: int) -> SpanResult:
    """At most `most` questions of a part (0 = all), by the `knowledge` recipe, ungated."""
    pieces, texts = _cut()
    spans = load_spans()
    queries: list[Query] = []
    documents: dict[str, str] = {}
    asked = list(sets.lines(NAME, "queries.jsonl"))
    for number, entry in enumerate(asked):
        documents[entry["id"]] = entry["meta"]["corpus"]
        queries.append(
            Query(number, entry["id"], entry["text"], "", entry["meta"]["part"], frozenset())
        )
    rows = tuple(Row(n, str(n), t, "", "", n) for n, t in enumerate(texts))
    one = LabelledSet(SetInfo(NAME, "knowledge", 0.0), rows, tuple(queries))
    question_vectors = embedder.of(NAME, [e["text"] for e in asked], InputType.QUERY)
    runner = Runner(one, question_vectors, embedder.of(NAME, texts, InputType.DOCUMENT))
    recipe = replace(runner.recipe, top_k=_TOP, gate=False)
    sample = runner.sample(part, most)
    found = dict.fromkeys(BASELINE, 0.0)
    held = 0
    for query in sample:
        scope = runner.first_scope()
        legs = runner.legs(query, scope, question_vectors)
        hits = runner.rank(query, recipe, legs, scope, question_vectors).hits
        ranked = [pieces[int(h.id)] for h in hits]
        evidence = spans[query.id]
        whole = len({c for start, end in evidence for c in range(start, end)})
        for n in BASELINE:
            first = first_characters(ranked, n * _CHARACTERS)
            share = covered(first, documents[query.id], evidence)
            found[n] += share / whole / len(sample)
            held += share if n == 5 else 0
    precision = held / (len(sample) * 5 * _CHARACTERS)
    return SpanResult(len(sample), len(pieces), found, precision)


def figures(result: SpanResult) -> list[Figure]:
    """(name, value, limit, met)."""
    return [
        Figure(f"chunk_evidence_{NAME}_{n * _CHARACTERS}", share, BASELINE[n], above=True)
        for n, share in result.found.items()
    ]


def as_json(result: SpanResult) -> dict[str, Any]:
    """For the results file."""
    return {
        "questions": result.questions,
        "pieces": result.pieces,
        "found": {str(n * _CHARACTERS): v for n, v in result.found.items()},
        "baseline": {str(n * _CHARACTERS): v for n, v in BASELINE.items()},
        "precision_4000": result.precision,
    }


def table(result: SpanResult) -> list[str]:
    """Markdown rows."""
    out = ["| returned characters | evidence found | packed chunks, RRF |", "|---|---|---|"]
    return out + [
        f"| {n * _CHARACTERS} | {share:.3f} | {BASELINE[n]:.3f} |"
        for n, share in result.found.items()
    ]
