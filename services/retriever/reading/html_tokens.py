"""HTML as a sequence of tags and texts, in one pass that is linear in the length of the page.

The parser of the standard library reads the rest of the page again after every broken tag and
raises on malformed declarations. This one does neither: what is no tag is text.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from typing import Final, Protocol

from services.retriever.reading.sanitize import sanitize

_NAME: Final = re.compile(r"[a-zA-Z][^\s/>]*")
_GAP: Final = re.compile(r"[\s/]*")
_SPACE: Final = re.compile(r"\s*")
_ATTRIBUTE: Final = re.compile(r"=?[^\s/>=]+|=")
_UNQUOTED: Final = re.compile(r"[^\s>]*")
# More digits than any character has: the standard library would make a number of them.
_ENDLESS_NUMBER: Final = re.compile(r"&#(?:[0-9]{9,}|[xX][0-9a-fA-F]{8,});?")
_RAW_END: Final = {
    tag: re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE)
    for tag in ("script", "style", "title", "textarea")
}
_UNREAD: Final = frozenset(("script", "style"))


class Handler(Protocol):
    """Who is told what stands in the page."""

    def start(self, tag: str, attributes: dict[str, str], *, closed: bool) -> None:
        """A start tag, its name in lower case; `closed`: written as `<tag/>`."""

    def end(self, tag: str) -> None:
        """An end tag, its name in lower case."""

    def text(self, data: str) -> None:
        """Text between tags, character references resolved."""


@dataclass(frozen=True)
class _Tag:
    name: str
    attributes: dict[str, str]
    closed: bool
    end: int


@dataclass
class _Scanner:
    page: str
    absent: set[str] = field(default_factory=set)

    def find(self, needle: str, at: int) -> int:
        """As `str.find`, but what was not found once is not looked for again further down."""
        if needle in self.absent:
            return -1
        found = self.page.find(needle, at)
        if found < 0:
            self.absent.add(needle)
        return found

    def raw_end(self, tag: str, at: int) -> int:
        """Where the end tag of a raw text element begins; -1: nowhere."""
        if f"</{tag}" in self.absent:
            return -1
        found = _RAW_END[tag].search(self.page, at)
        if found is None:
            self.absent.add(f"</{tag}")
            return -1
        return found.start()

    def start_tag(self, at: int) -> _Tag | None:
        """The start tag at `at`; None where it never ends."""
        page = self.page
        name = _NAME.match(page, at + 1)
        if name is None or self.find(">", at) < 0:
            return None
        attributes: dict[str, str] = {}
        at = name.end()
        while True:
            at = _end(_GAP, page, at)
            if at >= len(page):
                return None
            if page[at] == ">":
                closed = page[at - 1] == "/"
                return _Tag(name.group().lower(), attributes, closed, at + 1)
            named = _ATTRIBUTE.match(page, at)
            assert named is not None  # any character but a space, "/" and ">" begins one
            value, at = self._value(named.end())
            attributes.setdefault(named.group().lower(), decode(value))

    def _value(self, at: int) -> tuple[str, int]:
        """An attribute's value and where it ends; a quote that never closes ends with the tag."""
        page = self.page
        after = _end(_SPACE, page, at)
        if after >= len(page) or page[after] != "=":
            return "", at
        at = _end(_SPACE, page, after + 1)
        quote = page[at : at + 1]
        if quote not in ("'", '"'):
            end = _end(_UNQUOTED, page, at)
            return page[at:end], end
        end = self.find(quote, at + 1)
        if end >= 0:
            return page[at + 1 : end], end + 1
        end = self.find(">", at)
        end = end if end >= 0 else len(page)
        return page[at + 1 : end], end


def _end(pattern: re.Pattern[str], page: str, at: int) -> int:
    found = pattern.match(page, at)
    return found.end() if found else at


def decode(text: str) -> str:
    """`text` with its character references resolved; what may not be stored is left out."""
    if "&" not in text:
        return text
    return sanitize(html.unescape(_ENDLESS_NUMBER.sub("\ufffd", text)))[0]


def feed(page: str, to: Handler) -> None:
    """Tells `to` every tag and text of `page`, in order."""
    scanner = _Scanner(page)
    at = 0
    while at < len(page):
        mark = page.find("<", at)
        if mark < 0:
            mark = len(page)
        if mark > at:
            to.text(decode(page[at:mark]))
        if mark >= len(page):
            return
        at = _markup(scanner, mark, to)


def _markup(scanner: _Scanner, at: int, to: Handler) -> int:
    """What stands at the `<` at `at`; returns where it ends."""
    page = scanner.page
    kind = page[at + 1 : at + 2]
    if kind.isascii() and kind.isalpha():
        return _element(scanner, at, to)
    if kind == "/":
        name = _NAME.match(page, at + 2)
        end = scanner.find(">", at)
        if end >= 0:
            if name is not None:
                to.end(name.group().lower())
            return end + 1
    elif kind in ("!", "?"):
        return _declaration(scanner, at, to)
    to.text("<")
    return at + 1


def _element(scanner: _Scanner, at: int, to: Handler) -> int:
    tag = scanner.start_tag(at)
    if tag is None:
        # The page ends within this tag, so nothing after it can be one either.
        to.text(decode(scanner.page[at:]))
        return len(scanner.page)
    to.start(tag.name, tag.attributes, closed=tag.closed)
    if tag.name not in _RAW_END or tag.closed:
        return tag.end
    end = scanner.raw_end(tag.name, tag.end)
    if end < 0:
        return len(scanner.page) if tag.name in _UNREAD else tag.end
    if tag.name not in _UNREAD:
        to.text(decode(scanner.page[tag.end : end]))
    return end


def _declaration(scanner: _Scanner, at: int, to: Handler) -> int:
    """Comments, CDATA sections, document types, processing instructions."""
    page = scanner.page
    if page.startswith("<!--", at):
        end = scanner.find("-->", at + 2)
        if end >= 0:
            return end + 3
    elif page.startswith("<![CDATA[", at):
        end = scanner.find("]]>", at)
        if end >= 0:
            to.text(page[at + 9 : end])
            return end + 3
    end = scanner.find(">", at)
    if end >= 0:
        return end + 1
    to.text("<")
    return at + 1
