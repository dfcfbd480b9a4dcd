"""Values that every reader produces: a document as a sequence of typed blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final
from urllib.parse import urlsplit

MAX_TEXT_CHARS: Final = 8_000_000


class Kind(IntEnum):
    """What a block or chunk is; the numbers are those of the contract's ChunkKind, stored."""

    PARAGRAPH = 1
    TITLE = 2
    ABSTRACT = 3
    TABLE = 4
    CODE = 5
    LIST = 6
    TEASER = 7
    NOTE = 8


class Format(IntEnum):
    """How content is read; the numbers are those of the contract's ContentType and are stored."""

    TEXT = 1
    MARKDOWN = 2
    HTML = 3
    PDF = 4
    OTHER = 5


class Unreadable(StrEnum):
    """Why a document cannot be read."""

    EMPTY = "empty"
    BINARY = "binary"
    ENCODING = "encoding"
    ENCRYPTED = "encrypted"
    BROKEN = "broken"
    NO_TEXT = "no_text"
    TOO_LARGE = "too_large"
    NO_CONVERTER = "no_converter"


class ReadError(Exception):
    """A document that cannot be read; `message` is public and holds none of its content."""

    def __init__(self, cause: Unreadable, message: str) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message


def checked(text: str, before: int = 0) -> str:
    """`text`, unless the document holds too much with it. `before`: characters read already."""
    if before + len(text) > MAX_TEXT_CHARS:
        raise ReadError(Unreadable.TOO_LARGE, f"more than {MAX_TEXT_CHARS:,} characters")
    return text


@dataclass(frozen=True)
class Block:
    """One paragraph, list, table piece, code block or heading.

    `text` is `document[start:end]`, or begins with `header` (a repeated table header) followed by
    it. `section`: the headings above, outermost first. `whole`: must not be split or packed with
    its neighbours (tables, code). `page`: from 1, 0 where the format has no pages.
    """

    kind: Kind
    text: str
    start: int
    end: int
    section: tuple[str, ...] = ()
    page: int = 0
    whole: bool = False
    header: str = ""


@dataclass(frozen=True)
class Parsed:
    """A document after reading. `title`: from its own metadata or first heading, may be empty.

    `changes`: what sanitising did to the text, for the record.
    """

    format: Format
    text: str
    blocks: tuple[Block, ...]
    title: str = ""
    changes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Source:
    """What a client sent: exactly one of `text` and `data`. `format` None: to be found out."""

    text: str | None = None
    data: bytes | None = None
    format: Format | None = None
    uri: str = ""


def uri_path(uri: str) -> str:
    """The path of a uri; all of it where it is none (`http://[x`)."""
    try:
        return urlsplit(uri).path
    except ValueError:
        return uri
