"""How chunking is judged by labelled spans."""

from __future__ import annotations

from benchmarks.search import spans
from benchmarks.search.spans import Piece


def test_evidence_is_counted_once_and_only_in_its_document() -> None:
    evidence = [(10, 20), (15, 30)]
    assert spans.covered([Piece("d", 0, 12), Piece("d", 8, 18)], "d", evidence) == 8
    assert spans.covered([Piece("d", 0, 100)], "d", evidence) == 20
    assert spans.covered([Piece("other", 0, 100)], "d", evidence) == 0


def test_the_last_piece_is_cut_where_the_characters_end() -> None:
    pieces = [Piece("d", 0, 500), Piece("e", 100, 700), Piece("d", 500, 900)]
    assert spans.first_characters(pieces, 800) == [Piece("d", 0, 500), Piece("e", 100, 400)]


def test_every_span_is_a_range() -> None:
    found = spans.load_spans()
    assert len(found) == 472
    assert all(0 <= start < end for pairs in found.values() for start, end in pairs)
