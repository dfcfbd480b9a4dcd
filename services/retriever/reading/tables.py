"""Tables as text: a grid without spans, cut into pieces of whole rows with the header repeated."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from services.retriever.reading.graphemes import safe_cut

MAX_ROWS: Final = 20
MAX_CHARS: Final = 800
MAX_HEADER: Final = 2 * MAX_CHARS
_MAX_SPAN: Final = 1_000
_MAX_CELLS: Final = 200_000


@dataclass(frozen=True)
class Cell:
    """A cell as written: its text and how many rows and columns it covers."""

    text: str
    rowspan: int = 1
    colspan: int = 1
    header: bool = False


@dataclass
class _Placed:
    """A cell with the columns it covers and how many rows below it still reaches."""

    start: int
    end: int
    left: int
    text: str


def expand(rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """The grid with every spanned cell repeated in each place it covers.

    A rowspan that reaches below the last row is cut there, and columns in which no cell begins are
    left out: `colspan=1000` covers as many columns as there are. A table that is too large all the
    same (hostile spans) goes on as written, each cell once: no row is ever lost.
    """
    placed: list[list[_Placed]] = []
    hanging: list[_Placed] = []
    begins: set[int] = set()
    work = 0
    for row in rows:
        line = _place(row, hanging, begins, len(rows))
        work += len(line)
        if work > _MAX_CELLS:
            break
        placed.append(line)
        hanging = [p for p in line if p.left > 0]
    columns = sorted(begins)
    grid: list[list[str]] = []
    cells = 0
    for line in placed:
        filled: list[str] = []
        for p in line:
            first, last = bisect_left(columns, p.start), bisect_left(columns, p.end)
            filled.extend([""] * (first - len(filled)))
            filled.extend([p.text] * (last - first))
            cells += last - first
        if cells > _MAX_CELLS:
            break
        grid.append(filled)
    grid.extend([cell.text for cell in row] for row in rows[len(grid) :])
    return grid


def _place(
    row: Sequence[Cell], hanging: Sequence[_Placed], begins: set[int], rows: int
) -> list[_Placed]:
    """One row's cells in the gaps that the cells hanging down from above leave, in order."""
    line: list[_Placed] = []
    column = 0
    above = 0
    for cell in row:
        while above < len(hanging) and hanging[above].start <= column:
            line.append(_lowered(hanging[above]))
            column = hanging[above].end
            above += 1
        end = column + min(max(cell.colspan, 1), _MAX_SPAN)
        if above < len(hanging):
            end = min(end, hanging[above].start)
        begins.add(column)
        line.append(_Placed(column, end, min(max(cell.rowspan, 1), rows) - 1, cell.text))
        column = end
    line.extend(_lowered(p) for p in hanging[above:])
    return line


def _lowered(above: _Placed) -> _Placed:
    return _Placed(above.start, above.end, above.left - 1, above.text)


def header_rows(rows: Sequence[Sequence[Cell]]) -> int:
    """How many rows at the top are the header.

    All leading rows of header cells; a first row whose cells span several rows takes those rows in.
    Rows without text are no header and end none.
    """
    count = 0
    reach = 0
    for index, row in enumerate(rows):
        if not any(cell.text for cell in row):
            continue
        if all(cell.header for cell in row):
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
    A single row over the limit is a piece of its own. A table of header rows only is one piece. A
    header that is too long to repeat is a piece of its own as well, and repeated by its beginning.
    """
    header = "\n".join(line(row) for row in grid[:header_count])
    out: list[Piece] = []
    if len(header) > MAX_HEADER and len(grid) > header_count:
        out.append(Piece("", header, 0, 0))
        header = header[: safe_cut(header, MAX_HEADER)]
    room = max(max_chars - len(header), max_chars // 2)
    body = [line(row) for row in grid[header_count:]]
    if not body:
        return [Piece("", header, 0, 0)] if header else []
    start = 0
    size = 0
    for index, row in enumerate(body):
        if index > start and (index - start >= max_rows or size + len(row) > room):
            out.append(Piece(header, "\n".join(body[start:index]), start, index))
            start, size = index, 0
        size += len(row) + 1
    out.append(Piece(header, "\n".join(body[start:]), start, len(body)))
    return out
