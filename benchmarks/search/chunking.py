"""Chunks and tokens: what share of a long document a question really needs.

A document of at least 80,000 characters is made of a set's paragraphs; evidence is the sentence
that holds the labelled answer. Measured: prompt tokens of the whole document against those of the
retrieved chunks at 95 % of evidence found, and, in the same number of returned characters, the
evidence found with our chunks against packed chunks of 800 characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.report import Figure
from benchmarks.search import sets
from benchmarks.search.runner import Runner
from benchmarks.search.sets import LabelledSet, Query, Row, SetInfo
from benchmarks.search.vectors import Embedder
from services.embedder.model import InputType
from services.retriever import chunking
from services.retriever.reading import text as plain_text
from services.retriever.reading.sentences import estimate_tokens, sentences

CHARACTERS = 80_000
RATIO_AT_LEAST = 14.0
RECALL = 0.95
_PACKED = 800
_DEPTHS = range(1, 21)


@dataclass(frozen=True)
class Piece:
    """A chunk: characters [start, end) of the document."""

    start: int
    end: int


@dataclass(frozen=True)
class Question:
    """A question and where its evidence lies."""

    query: Query
    start: int
    end: int


@dataclass(frozen=True)
class ChunkResult:
    """One document. `depth`: chunks needed for 95 % of the evidence; ratio: tokens whole/retrieved.

    `found`, `packed`: share of evidence characters in 4,000 returned characters.
    """

    name: str
    characters: int
    questions: int
    depth: int
    recall: float
    ratio: float
    found: float
    packed: float


def _document(one: LabelledSet) -> tuple[str, list[Question]]:
    """The long text and the test questions whose answer can be placed in it."""
    text, starts = "", dict[str, int]()
    for row in one.rows:
        if len(text) >= CHARACTERS:
            break
        starts[row.id] = len(text)
        text += row.text.strip() + "\n\n"
    by_id = {r.id: r.text.strip() for r in one.rows}
    questions: list[Question] = []
    for query in one.queries:
        row_id = next(iter(query.relevant))
        if query.part != "test" or row_id not in starts or not query.answers:
            continue
        paragraph, answer = by_id[row_id], query.answers[0]
        at = paragraph.find(answer)
        if at >= 0:
            spans = [(a, b) for a, b in sentences(paragraph) if a <= at < b]
            begin, end = spans[0] if spans else (at, at + len(answer))
            questions.append(Question(query, starts[row_id] + begin, starts[row_id] + end))
    return text, questions


def _covered(pieces: Sequence[Piece], question: Question) -> float:
    """Share of the evidence's characters within the pieces."""
    held: set[int] = set()
    for piece in pieces:
        held.update(range(max(piece.start, question.start), min(piece.end, question.end)))
    return len(held) / (question.end - question.start)


def _ranked(
    text: str, pieces: Sequence[Piece], one: LabelledSet, embedder: Embedder, label: str,
    questions: Sequence[Question],
) -> list[list[Piece]]:  # fmt: skip
    """Pieces best first for every question, by the `document` recipe."""
    rows = tuple(Row(n, str(n), text[p.start : p.end], "", "", n) for n, p in enumerate(pieces))
    info = SetInfo(f"{one.info.name}-{label}", "document", 0.0)
    held = embedder.of(info.name, [r.text for r in rows], InputType.DOCUMENT)
    names = [str(e["text"]) for e in sets.lines(one.info.name, "queries.jsonl")]
    asked = embedder.of(one.info.name, names, InputType.QUERY)
    runner = Runner(LabelledSet(info, rows, one.queries), asked, held)
    runner.recipe = replace(runner.recipe, top_k=max(_DEPTHS))
    out: list[list[Piece]] = []
    for question in questions:
        scope = runner.first_scope()
        legs = runner.legs(question.query, scope, asked)
        hits = runner.rank(question.query, runner.recipe, legs, scope, asked).hits
        out.append([pieces[int(h.id)] for h in hits])
    return out


def _in_budget(pieces: Sequence[Piece], characters: int) -> list[Piece]:
    """The first pieces that fit, the last one cut."""
    out: list[Piece] = []
    for piece in pieces:
        room = characters - sum(p.end - p.start for p in out)
        if room <= 0:
            break
        out.append(Piece(piece.start, min(piece.end, piece.start + room)))
    return out


def measure(name: str, embedder: Embedder, most: int) -> ChunkResult:
    """One long document of a set's paragraphs."""
    info = next(s for s in sets.SETS if s.name == name)
    one = sets.load(info)
    text, questions = _document(one)
    questions = questions[:most] if most else questions
    _, blocks = plain_text.read(text)
    ours = [Piece(c.start, c.end) for c in chunking.chunk(text, blocks)]
    packed = [Piece(a, min(a + _PACKED, len(text))) for a in range(0, len(text), _PACKED)]
    ranked = _ranked(text, ours, one, embedder, "chunks", questions)
    plain = _ranked(text, packed, one, embedder, "packed", questions)
    whole, depth, recall = estimate_tokens(text), max(_DEPTHS), 0.0
    for depth in _DEPTHS:
        shares = [_covered(r[:depth], q) for r, q in zip(ranked, questions, strict=True)]
        recall = sum(shares) / len(shares)
        if recall >= RECALL:
            break
    spent = [sum(estimate_tokens(text[p.start : p.end]) for p in r[:depth]) for r in ranked]

    def within(found: Sequence[Sequence[Piece]]) -> float:
        pairs = zip(found, questions, strict=True)
        return sum(_covered(_in_budget(r, 4_000), q) for r, q in pairs) / len(questions)

    return ChunkResult(
        name, len(text), len(questions), depth, recall,
        whole / (sum(spent) / len(spent)), within(ranked), within(plain),
    )  # fmt: skip


def figures(results: Sequence[ChunkResult]) -> list[Figure]:
    """(name, value, limit, met)."""
    out: list[Figure] = []
    for r in results:
        out += [
            Figure(f"tokens_ratio_{r.name}", r.ratio, RATIO_AT_LEAST),
            Figure(f"tokens_recall_{r.name}", r.recall, RECALL),
            Figure(f"chunk_evidence_{r.name}", r.found, r.packed),
        ]
    return out


def as_json(results: Sequence[ChunkResult]) -> list[dict[str, Any]]:
    """For the results file."""
    return [asdict(r) for r in results]
