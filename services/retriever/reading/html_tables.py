"""A table while its tags come in, and its text once it is closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from services.retriever.reading import tables
from services.retriever.reading.tables import Cell

_INLINE_NESTED: Final = 400
_BREAKS: Final = frozenset(("p", "div", "li", "br", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6"))


@dataclass(frozen=True)
class TablePiece:
    """Some whole rows. `shown`: what a chunk holds. `start`/`end`: its rows in the table's text."""

    shown: str
    header: str
    start: int
    end: int


@dataclass(frozen=True)
class TableText:
    """A table as text: caption, header, rows, once each; and the pieces it is cut into."""

    text: str
    pieces: tuple[TablePiece, ...]


def _span(value: str) -> int:
    digits = value.strip()[:6]
    return max(1, int(digits)) if digits.isdecimal() else 1


@dataclass
class OpenTable:
    """Rows and cells of one `<table>`; end tags may be missing, as HTML allows."""

    layout: bool = False
    rows: list[list[Cell]] = field(default_factory=list)
    caption: list[str] = field(default_factory=list)
    nested: list[TableText | str] = field(default_factory=list)
    _cell: list[str] | None = None
    _shape: tuple[int, int, bool] = (1, 1, False)
    _row_open: bool = False
    _in_caption: bool = False
    _stray: list[str] = field(default_factory=list)
    _sections: list[int] = field(default_factory=list)

    def sink(self) -> list[str]:
        """Where text goes now."""
        if self._in_caption:
            return self.caption
        return self._cell if self._cell is not None else self._stray

    def begin(self, tag: str, attributes: Mapping[str, str]) -> None:
        """A start tag inside the table (not of a nested one)."""
        if tag == "caption":
            self._in_caption = True
        elif tag in ("tr", "thead", "tbody", "tfoot"):
            self._in_caption = False
            self._close_row(tag)
            if tag == "tr":
                self.rows.append([])
                self._row_open = True
        elif tag in ("td", "th"):
            self._close_cell()
            if not self._row_open:
                self.rows.append([])
                self._row_open = True
            self._cell = []
            rowspan = attributes.get("rowspan", "1")
            # rowspan=0 means "to the end of the section".
            rows = 1_000 if rowspan.strip() == "0" else _span(rowspan)
            self._shape = (rows, _span(attributes.get("colspan", "1")), tag == "th")
        elif tag in _BREAKS:
            self.sink().append(" ")

    def end(self, tag: str) -> None:
        """An end tag inside the table."""
        if tag == "caption":
            self._in_caption = False
        elif tag in ("td", "th"):
            self._close_cell()
        elif tag in ("tr", "thead", "tbody", "tfoot"):
            self._close_row(tag)
        elif tag in _BREAKS:
            self.sink().append(" ")

    def nest(self, inner: OpenTable) -> None:
        """A table inside the open cell: short ones become part of the cell, long ones follow."""
        closed = inner.close()
        flat = inner.flat()
        if len(flat) <= _INLINE_NESTED:
            self.sink().append(f" {flat} ")
            return
        self.sink().append(f" [table: {' '.join(''.join(inner.caption).split()) or 'below'}] ")
        self.nested.extend(closed)

    def flat(self) -> str:
        """All rows on one line, for a cell of an outer table."""
        rows = ("; ".join(c.text for c in row if c.text) for row in self.rows)
        return "(" + " / ".join(r for r in rows if r) + ")"

    def close(self) -> list[TableText | str]:
        """What the table comes to, then its long nested ones. Layout tables: paragraphs."""
        self._close_cell()
        rows = [row for row in self.rows if _says(row)]
        before: list[TableText | str] = []
        stray = " ".join("".join(self._stray).split())
        if stray:
            before.append(stray)
        caption = " ".join("".join(self.caption).split())
        if not rows:
            return [*before, *([caption] if caption else []), *self.nested]
        width = max(len(row) for row in rows)
        if self.layout or len(rows) == 1 or (width == 1 and not any(r[0].header for r in rows)):
            cells = [cell.text for row in rows for cell in row if cell.text]
            return [*before, *([caption] if caption else []), *cells, *self.nested]
        return [*before, _text(self._cut(), caption), *self.nested]

    def _cut(self) -> list[list[Cell]]:
        """All rows, the empty ones too; no cell reaches beyond its head, body or foot."""
        out: list[list[Cell]] = []
        for end in (*self._sections, len(self.rows)):
            out.extend(
                [replace(cell, rowspan=min(cell.rowspan, end - at)) for cell in self.rows[at]]
                for at in range(len(out), end)
            )
        return out

    def _close_row(self, tag: str) -> None:
        self._close_cell()
        self._row_open = False
        if tag != "tr" and self._sections[-1:] != [len(self.rows)]:
            self._sections.append(len(self.rows))

    def _close_cell(self) -> None:
        if self._cell is None:
            return
        rowspan, colspan, header = self._shape
        text = " ".join("".join(self._cell).split())
        self.rows[-1].append(Cell(text, rowspan, colspan, header))
        self._cell = None


def _says(row: list[Cell]) -> bool:
    return any(cell.text for cell in row)


def _text(rows: list[list[Cell]], caption: str) -> TableText:
    """Rows without a text of their own go last: cells from above hang down through them."""
    top = tables.header_rows(rows)
    kept = [at for at, row in enumerate(rows) if _says(row)]
    full = tables.expand(rows)
    grid = [full[at] for at in kept]
    # A table without header cells: its first row names the columns in all but a few cases.
    count = min(sum(at < top for at in kept), len(kept) - 1) or 1
    cut = tables.pieces(grid, count)
    header = "\n".join(tables.line(row) for row in grid[:count])
    lead = f"{caption}\n{header}\n" if caption else f"{header}\n"
    at = len(lead)
    out: list[TablePiece] = []
    for index, piece in enumerate(cut):
        start = 0 if index == 0 else at
        shown = f"{piece.header}\n{piece.body}" if piece.header else piece.body
        if index == 0 and caption:
            shown = f"{caption}\n{shown}"
        if piece.first == piece.last:  # the header alone
            out.append(TablePiece(shown, "", 0, len(lead) - 1))
            continue
        end = at + len(piece.body)
        out.append(TablePiece(shown, piece.header, start, end))
        at = end + 1
    return TableText(lead + "\n".join(p.body for p in cut if p.last > p.first), tuple(out))
