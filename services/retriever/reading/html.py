"""HTML as text: boilerplate out, headings as section path, tables by whole rows.

Broken nesting, missing end tags and unknown elements are read as well as they can be. Depth costs
no recursion here, so hostile nesting is only long, not deep.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from services.retriever.reading import html_tokens
from services.retriever.reading.blocks import Block, Kind
from services.retriever.reading.html_tables import OpenTable, TableText

_VOID: Final = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    ]
)
_SKIP: Final = frozenset(
    [
        "script",
        "style",
        "noscript",
        "template",
        "nav",
        "footer",
        "aside",
        "form",
        "button",
        "select",
        "option",
        "svg",
        "iframe",
        "object",
        "canvas",
        "dialog",
        "audio",
        "video",
        "map",
        "datalist",
    ]
)
_ALWAYS_SKIP: Final = frozenset(("script", "style", "noscript", "template", "svg", "iframe"))
_BLOCK: Final = frozenset(
    [
        "p",
        "div",
        "section",
        "article",
        "main",
        "header",
        "hgroup",
        "ul",
        "ol",
        "dl",
        "dt",
        "dd",
        "blockquote",
        "figure",
        "figcaption",
        "address",
        "details",
        "summary",
        "body",
        "html",
        "hr",
        "fieldset",
    ]
)
_HEADINGS: Final = {f"h{i}": i for i in range(1, 7)}
_BOILERPLATE: Final = re.compile(
    r"(?:^|[\s_-])(?:nav|navbar|navigation|breadcrumbs?|sidebar|cookies?|advert(?:isement)?|ads"
    r"|share|social|menu|skip-link|toc)(?:$|[\s_-])",
    re.IGNORECASE,
)
_SPACE: Final = re.compile(r"[ \t\r\n\f\u00a0]+")
_MAX_DEPTH: Final = 10_000


@dataclass
class _Writer:
    """The document's text as it grows, with the blocks that point into it."""

    parts: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    headings: list[tuple[int, str]] = field(default_factory=list)
    size: int = 0

    @property
    def section(self) -> tuple[str, ...]:
        return tuple(title for _, title in self.headings)

    def put(self, text: str) -> int:
        """Appends a paragraph of its own; returns where it begins."""
        start = self.size
        self.parts.append(text)
        self.size += len(text) + 2
        return start

    def block(self, kind: Kind, text: str, *, whole: bool = False) -> None:
        start = self.put(text)
        self.blocks.append(Block(kind, text, start, start + len(text), self.section, whole=whole))

    def heading(self, level: int, text: str) -> None:
        while self.headings and self.headings[-1][0] >= level:
            self.headings.pop()
        self.headings.append((level, text))
        self.block(Kind.TITLE, text)

    def table(self, table: TableText) -> None:
        start = self.put(table.text)
        for piece in table.pieces:
            self.blocks.append(
                Block(
                    Kind.TABLE,
                    piece.shown,
                    start + piece.start,
                    start + piece.end,
                    self.section,
                    whole=True,
                    header=piece.header,
                )
            )


class _Parser:
    def __init__(self, *, only_main: bool, strict: bool) -> None:
        self.out = _Writer()
        self.title: list[str] = []
        self._only_main = only_main
        self._strict = strict
        self._open: list[tuple[str, bool]] = []  # tag, whether its content is skipped
        self._opened: Counter[str] = Counter()  # how many of each tag are open
        self._skips = 0
        self._buffer: list[str] = []
        self._kind = Kind.PARAGRAPH
        self._heading = 0
        self._pre = 0
        self._lists = 0
        self._in_title = False
        self._tables: list[OpenTable] = []

    # -- events of the page --------------------------------------------------------------------
    def start(self, tag: str, attributes: dict[str, str], *, closed: bool) -> None:
        self._in_title = False  # a title holds no elements: one that is not closed ends here
        if tag == "title" and not self._opened["svg"]:
            self._in_title = True
            return
        if tag in _VOID:
            self._void(tag, attributes)
            return
        skip = self._skipped(tag, attributes)
        if len(self._open) < _MAX_DEPTH:
            self._open.append((tag, skip))
            self._opened[tag] += 1
            self._skips += skip
        if not self._skips:
            self._begin(tag, attributes)
        if closed and tag not in ("td", "th", "tr"):
            self.end(tag)

    def end(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
            return
        if not self._opened[tag]:
            return
        silent = self._skips > 0
        while self._open:
            name, skip = self._open.pop()
            self._opened[name] -= 1
            self._skips -= skip
            if not silent and name != tag:
                self._end(name)
            if name == tag:
                break
        if not silent:
            self._end(tag)

    def text(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._skips and (self._opened["main"] or not self._only_main):
            self._sink().append(data if self._pre else _SPACE.sub(" ", data))

    def finish(self) -> None:
        """Ends whatever the document left open."""
        while self._tables:
            self._end_table()
        self._flush()

    # -- structure -----------------------------------------------------------------------------
    def _skipped(self, tag: str, attributes: dict[str, str]) -> bool:
        if tag in _ALWAYS_SKIP or "hidden" in attributes:
            return True
        if not self._strict or tag in ("html", "body", "main", "article"):
            return False
        if tag in _SKIP or attributes.get("role") in ("navigation", "banner", "contentinfo"):
            return True
        named = f"{attributes.get('class', '')} {attributes.get('id', '')}"
        return tag in ("div", "section", "ul", "ol", "p", "span") and bool(
            _BOILERPLATE.search(named)
        )

    def _sink(self) -> list[str]:
        if self._tables:
            return self._tables[-1].sink()
        return self._buffer

    def _void(self, tag: str, attributes: dict[str, str]) -> None:
        if self._skips or (self._only_main and not self._opened["main"]):
            return
        if tag == "br":
            self._sink().append("\n")
        elif tag == "hr":
            self._flush()
        elif tag == "img" and attributes.get("alt"):
            self._sink().append(attributes["alt"])
        elif tag == "meta" and attributes.get("property") == "og:title" and not self.title:
            self.title.append(attributes.get("content", ""))

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "table":
            if not self._tables:
                self._flush()
            self._tables.append(OpenTable(layout=attributes.get("role") == "presentation"))
        elif self._tables:
            self._tables[-1].begin(tag, attributes)
        elif tag in _HEADINGS:
            self._flush()
            self._heading = _HEADINGS[tag]
        elif tag == "pre":
            self._flush()
            self._pre += 1
            self._kind = Kind.CODE
        elif tag in ("ul", "ol"):
            if not self._lists:
                self._flush()
            self._lists += 1
            self._kind = Kind.LIST
        elif tag == "li":
            self._buffer.append("\n- " if self._lists < 2 else "\n  - ")
        elif tag in _BLOCK and not self._lists:
            self._flush()

    def _end(self, tag: str) -> None:
        if tag == "table":
            if self._tables:
                self._end_table()
        elif self._tables:
            self._tables[-1].end(tag)
        elif tag in _HEADINGS:
            self._flush()
            self._heading = 0
        elif tag == "pre":
            self._flush()
            self._pre = max(0, self._pre - 1)
            self._kind = Kind.PARAGRAPH
        elif tag in ("ul", "ol"):
            self._lists = max(0, self._lists - 1)
            if not self._lists:
                self._flush()
                self._kind = Kind.PARAGRAPH
        elif tag in _BLOCK and not self._lists:
            self._flush()

    def _end_table(self) -> None:
        table = self._tables.pop()
        if self._tables:
            self._tables[-1].nest(table)
            return
        for done in table.close():
            if isinstance(done, TableText):
                self.out.table(done)
            else:
                self.out.block(Kind.PARAGRAPH, done)

    def _flush(self) -> None:
        raw = "".join(self._buffer)
        self._buffer = []
        if self._kind is Kind.CODE and self._pre:
            code = raw.strip("\n")
            if code.strip():
                self.out.block(Kind.CODE, code, whole=True)
            return
        lines = (" ".join(x.split()) if "  -" not in x[:4] else x.rstrip() for x in raw.split("\n"))
        text = "\n".join(x for x in lines if x and x != "-").strip()
        if not text:
            return
        if self._heading:
            self.out.heading(self._heading, " ".join(text.split()))
        else:
            self.out.block(Kind.LIST if self._lists else self._kind, text)


def _parse(source: str, *, only_main: bool, strict: bool) -> _Parser:
    parser = _Parser(only_main=only_main, strict=strict)
    html_tokens.feed(source, parser)
    parser.finish()
    return parser


def read(source: str) -> tuple[str, str, list[Block]]:
    """Text, title and blocks of a page.

    Only `<main>` where there is one. A page that is nothing but "boilerplate" is read whole, so
    that a wrong guess about a class name never loses a document.
    """
    parser = _parse(source, only_main="<main" in source.lower(), strict=True)
    if not parser.out.blocks:
        parser = _parse(source, only_main=False, strict=False)
    blocks = parser.out.blocks
    title = " ".join("".join(parser.title).split())
    if not title:
        title = next((b.text for b in blocks if b.kind is Kind.TITLE), "")
    return "\n\n".join(parser.out.parts), title[:500], blocks
