"""Markdown: headings as section path, fenced code whole, pipe tables by rows, front matter.

A line scanner over CommonMark's block structure with the table extension. Inline marks stay as
written: they are text to a reader and offsets keep pointing into the source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from services.retriever.reading import tables
from services.retriever.reading.blocks import Block, Kind

_ATX: Final = re.compile(r"^ {0,3}(#{1,6})(?![^ \t])(.*)$")
_SETEXT: Final = re.compile(r"^ {0,3}(=+|-+)[ \t]*$")
# The info string of a backtick fence holds no backtick: "```x```" is code within a line.
_FENCE: Final = re.compile(r"^( {0,3})(`{3,}+(?=[^`]*$)|~{3,})")
_FENCE_INDENT: Final = 3
_LIST: Final = re.compile(r"^\s{0,3}(?:[-*+]|\d{1,9}[.)])[ \t]+\S")
_RULE: Final = re.compile(r"^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_DELIMITER: Final = re.compile(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?")
_COMMENT: Final = re.compile(r"^ {0,3}<!--")
_FRONT: Final = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
# What may stand at the margin of front matter: a key, an item of a list, a bracket, a comment.
_FRONT_KEY: Final = re.compile(r"[\w\"'][\w .\"'-]*+:(?:[ \t]|$)")
_FRONT_OTHER: Final = re.compile(r"-[ \t]|[\]}#]|$")
_FRONT_TITLE: Final = re.compile(r"^title:[ \t]*(\S.*)$", re.MULTILINE)
_LINK: Final = re.compile(r"!?\[([^\[\]]*)\]\((?:[^()]|\([^()]*\))*\)")
_LITERAL: Final = re.compile(r"\\([!-/:-@\[-`{-~])|(?<!`)(`++)(.+?)(?<!`)\2(?!`)")
_EMPHASIS: Final = re.compile(
    r"(\*{1,3})(?=\S)(.+?)(?<=\S)\1|(?<!\w)(_{1,3})(?=\S)(.+?)(?<=\S)\3(?!\w)"
)
_KEPT: Final = re.compile(r"\0(\d+)\0")
_MAX_MARKED: Final = 1_000
_MAX_NESTED: Final = 3
_CELL: Final = re.compile(r"(?<!\\)\|")


@dataclass
class _Scan:
    """Lines with their offsets and what has been found so far."""

    text: str
    lines: list[tuple[int, str]]
    at: int = 0
    headings: list[tuple[int, str]] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    @property
    def section(self) -> tuple[str, ...]:
        return tuple(title for _, title in self.headings)

    def end_of(self, index: int) -> int:
        start, content = self.lines[index]
        return start + len(content)

    def add(self, kind: Kind, first: int, last: int, *, whole: bool = False) -> None:
        """A block of the lines first..last inclusive."""
        start, end = self.lines[first][0], self.end_of(last)
        body = self.text[start:end]
        if body.strip():
            self.blocks.append(Block(kind, body, start, end, self.section, whole=whole))


def plain(inline: str) -> str:
    """A heading without its inline marks and link targets.

    Marks are what CommonMark takes for some: in pairs, `_` at the edge of a word only, nothing in
    code or after a backslash. A line of more than 1,000 characters is no heading with marks."""
    text = inline.replace("\0", "")
    if len(text) <= _MAX_MARKED:
        kept: list[str] = []

        def keep(match: re.Match[str]) -> str:
            kept.append(match.group(1) or match.group(3).strip())
            return f"\0{len(kept) - 1}\0"

        text = _LINK.sub(lambda m: m.group(1), _LITERAL.sub(keep, text))
        for _ in range(_MAX_NESTED):
            text = _EMPHASIS.sub(lambda m: m.group(2) or m.group(4), text)
        text = _KEPT.sub(lambda m: kept[int(m.group(1))], text)
    return " ".join(text.split())


def read(text: str) -> tuple[str, list[Block]]:
    """Title (front matter, else the first level-1 heading) and blocks of a Markdown text."""
    title = ""
    begin = 0
    front = _FRONT.match(text)
    if front and _has_keys(front.group(1)):
        begin = front.end()
        named = _FRONT_TITLE.search(front.group(1))
        title = _unquoted(named.group(1).strip()) if named else ""
    scan = _Scan(text, _lines(text, begin))
    while scan.at < len(scan.lines):
        _step(scan)
    if not title:
        title = next((b.text for b in scan.blocks if b.kind is Kind.TITLE), "")
        title = plain(title.lstrip("# ").split("\n")[0])
    return title, scan.blocks


def _has_keys(front: str) -> bool:
    """Whether what stands between two rules is front matter, that is YAML with keys, not text."""
    margin = [line for line in front.split("\n") if not line.startswith((" ", "\t"))]
    keys = [line for line in margin if _FRONT_KEY.match(line)]
    others = [line for line in margin if _FRONT_OTHER.match(line.rstrip())]
    return bool(keys) and len(keys) + len(others) == len(margin)


def _lines(text: str, begin: int) -> list[tuple[int, str]]:
    out: list[tuple[int, str]] = []
    at = begin
    for raw in text[begin:].split("\n"):
        out.append((at, raw.rstrip("\r")))
        at += len(raw) + 1
    return out


def _step(scan: _Scan) -> None:
    content = scan.lines[scan.at][1]
    atx = _ATX.match(content)
    fence = _FENCE.match(content)
    if not content.strip() or _RULE.match(content):
        scan.at += 1
    elif fence:
        _code(scan, len(fence.group(1)), fence.group(2))
    elif atx:
        _heading(scan, len(atx.group(1)), _without_closing(atx.group(2)), scan.at)
    elif _COMMENT.match(content):
        _comment(scan)
    elif _table_starts(scan):
        _table(scan)
    elif _LIST.match(content):
        _list(scan)
    else:
        _paragraph(scan)


def _unquoted(value: str) -> str:
    return value.removeprefix(value[:1] if value[:1] in "\"'" else "").rstrip("\"'").strip()


def _without_closing(inline: str) -> str:
    """A heading's text without the `#` signs that may close it."""
    text = inline.strip(" \t")
    opened = text.rstrip("#")
    return text if opened and not opened.endswith((" ", "\t")) else opened.rstrip(" \t")


def _heading(scan: _Scan, level: int, inline: str, last: int) -> None:
    title = plain(inline)
    first = scan.at
    scan.at = last + 1
    if not title:
        return
    while scan.headings and scan.headings[-1][0] >= level:
        scan.headings.pop()
    scan.headings.append((level, title))
    scan.add(Kind.TITLE, first, last)


def _code(scan: _Scan, indent: int, mark: str) -> None:
    """A fence that was opened by `mark`. An opening inside a list stands as far in as its item, so
    the closing one may be indented from there on: deeper ones are code."""
    first = scan.at
    last = len(scan.lines) - 1
    for index in range(first + 1, len(scan.lines)):
        line = scan.lines[index][1].rstrip(" \t")
        content = line.lstrip(" ")
        deep = len(line) - len(content) > indent + _FENCE_INDENT
        if not deep and content.startswith(mark) and not content.strip(mark[0]):
            last = index
            break
    scan.add(Kind.CODE, first, last, whole=True)
    scan.at = last + 1


def _comment(scan: _Scan) -> None:
    """Leaves a comment out; what stands behind it on its last line is read as a line."""
    while scan.at < len(scan.lines):
        start, content = scan.lines[scan.at]
        _, closed, behind = content.partition("-->")
        if closed and behind.strip():
            rest = behind.lstrip()
            scan.lines[scan.at] = (start + len(content) - len(rest), rest)
            break
        scan.at += 1
        if closed:
            break


def _table_starts(scan: _Scan) -> bool:
    if scan.at + 1 >= len(scan.lines) or "|" not in scan.lines[scan.at][1]:
        return False
    delimiter = scan.lines[scan.at + 1][1].strip()
    return "-" in delimiter and _DELIMITER.fullmatch(delimiter) is not None


def _cells(content: str) -> list[str]:
    stripped = content.strip()
    stripped = stripped.removeprefix("|")
    if stripped.endswith("|") and not stripped.endswith("\\|"):
        stripped = stripped[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _CELL.split(stripped)]


def _table(scan: _Scan) -> None:
    first = scan.at
    body = first + 2
    last = body
    while last < len(scan.lines) and "|" in scan.lines[last][1]:
        last += 1
    grid = [_cells(scan.lines[first][1])]
    grid.extend(_cells(scan.lines[i][1]) for i in range(body, last))
    for piece in tables.pieces(grid, 1):
        if piece.last > piece.first:
            start = scan.lines[body + piece.first][0]
            end = scan.end_of(body + piece.last - 1)
        else:
            start, end = scan.lines[first][0], scan.end_of(first)
        shown = f"{piece.header}\n{piece.body}" if piece.header else piece.body
        scan.blocks.append(
            Block(Kind.TABLE, shown, start, end, scan.section, whole=True, header=piece.header)
        )
    scan.at = last


def _list(scan: _Scan) -> None:
    first = scan.at
    last = first
    index = first + 1
    while index < len(scan.lines):
        content = scan.lines[index][1]
        if content.strip():
            inside = _LIST.match(content) or content.startswith((" ", "\t"))
            lazy = bool(scan.lines[index - 1][1].strip()) and not _interrupts(content)
            if not (inside or lazy) or _FENCE.match(content):
                break
            last = index
        elif index + 1 < len(scan.lines) and not scan.lines[index + 1][1].strip():
            break
        index += 1
    scan.add(Kind.LIST, first, last)
    scan.at = last + 1


def _interrupts(content: str) -> bool:
    return bool(_ATX.match(content) or _FENCE.match(content) or _RULE.match(content))


def _paragraph(scan: _Scan) -> None:
    first = scan.at
    index = first + 1
    while index < len(scan.lines):
        content = scan.lines[index][1]
        setext = _SETEXT.match(content)
        if setext and index == first + 1:
            level = 1 if "=" in setext.group(1) else 2
            _heading(scan, level, scan.lines[first][1].strip(), index)
            return
        if not content.strip() or _interrupts(content) or _LIST.match(content):
            break
        index += 1
    scan.add(Kind.PARAGRAPH, first, index - 1)
    scan.at = index
