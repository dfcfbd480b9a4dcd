"""Tables as text: a grid without spans, cut into pieces of whole rows with the header repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MAX_ROWS: Final = 20
MAX_CHARS: Final = 800
_MAX_SPAN: Final = 1_000
_MAX_CELLS: Final = 200_000


@dataclass(frozen=True)
class Cell:
    """A cell as written: its text and how many rows and columns it covers."""

    text: str
    rowspan: int = 1
    colspan: int = 1
    header: bool = False


def expand(rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """The grid with every spanned cell repeated in each place it covers.

    A rowspan that reaches below the last row is cut there; absurd spans are capped, so that a
    hostile table cannot fill the memory.
    """
    grid: list[list[str]] = []
    open_spans: dict[int, tuple[int, str]] = {}  # column -> (rows left, text)
    cells = 0
    for row in rows:
        line: list[str] = []
        pending = list(row)
        column = 0
        while pending or any(c >= column for c in open_spans):
            if column in open_spans:
                left, text = open_spans[column]
                line.append(text)
                if left > 1:
                    open_spans[column] = (left - 1, text)
                else:
                    del open_spans[column]
                column += 1
                continue
            if not pending:
                line.append("")
                column += 1
                continue
            cell = pending.pop(0)
            for _ in range(min(max(cell.colspan, 1), _MAX_SPAN)):
                line.append(cell.text)
                if cell.rowspan > 1:
                    open_spans[column] = (min(cell.rowspan, len(rows)) - 1, cell.text)
                column += 1
        cells += len(line)
        if cells > _MAX_CELLS:
            break
        grid.append(line)
    return grid


def header_rows(rows: Sequence[Sequence[Cell]]) -> int:
    """How many rows at the top are the header.

    All leading rows of header cells; a first row whose cells span several rows takes those rows in.
    """
    count = 0
    reach = 0
    for index, row in enumerate(rows):
        if row and all(cell.header for cell in row):
            count = index + 1
            reach = max(reach, *(index + min(cell.rowspan, len(rows)) for cell in row))
        elif index < reach and count:
            # The rest of a header whose first row has spanning cells beside plain ones.
            count = index + 1
        else:
            break
    # A header cell in the first column that spans all rows is a row label, not a header row.
    return min(count, max(len(rows) - 1, 0))


def line(cells: Sequence[str]) -> str:
    """One row as text."""
    return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |"


@dataclass(frozen=True)
class Piece:
    """Some rows of a table. `first`/`last`: row numbers of the body, last exclusive."""

    header: str
    body: str
    first: int
    last: int


def pieces(
    grid: Sequence[Sequence[str]],
    header_count: int,
    *,
    max_rows: int = MAX_ROWS,
    max_chars: int = MAX_CHARS,
) -> list[Piece]:
    """The body in pieces of at most `max_rows` rows or `max_chars` characters, whole rows only.

    The characters count the repeated header, unless that leaves the rows less than half of them.
    A single row over the limit is a piece of its own. A table of header rows only is one piece.
    """
    header = "\n".join(line(row) for row in grid[:header_count])
    room = max(max_chars - len(header), max_chars // 2)
    body = [line(row) for row in grid[header_count:]]
    if not body:
        return [Piece("", header, 0, 0)] if header else []
    out: list[Piece] = []
    start = 0
    size = 0
    for index, row in enumerate(body):
        if index > start and (index - start >= max_rows or size + len(row) > room):
            out.append(Piece(header, "\n".join(body[start:index]), start, index))
            start, size = index, 0
        size += len(row) + 1
    out.append(Piece(header, "\n".join(body[start:]), start, len(body)))
    return out
