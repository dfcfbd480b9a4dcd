"""The one entry to reading: finds format and encoding, sanitises, calls the right reader."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote

from services.retriever.reading import html, markdown, other, pdf, text
from services.retriever.reading.blocks import (
    Block,
    Format,
    Parsed,
    ReadError,
    Source,
    Unreadable,
    checked,
    uri_path,
)
from services.retriever.reading.encoding import decode
from services.retriever.reading.sanitize import sanitize

_SUFFIXES: Final = {
    ".md": Format.MARKDOWN,
    ".markdown": Format.MARKDOWN,
    ".mdx": Format.MARKDOWN,
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".xhtml": Format.HTML,
    ".pdf": Format.PDF,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".log": Format.TEXT,
    ".csv": Format.TEXT,
    ".docx": Format.OTHER,
    ".pptx": Format.OTHER,
    ".xlsx": Format.OTHER,
    ".epub": Format.OTHER,
}
_HTML: Final = re.compile(
    r"\A\s*(?:(?><!--.*?-->)\s*)*+<(?:!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_MARKDOWN: Final = re.compile(r"^(?:#{1,6} \S|```|\|.*\|\s*\n\|[\s:|-]+\|)", re.MULTILINE)


def file_name(uri: str) -> str:
    """The last part of a uri's path without its suffix, for instance "handbook"; "" if none."""
    name = unquote(PurePosixPath(uri_path(uri).replace("\\", "/")).name)
    return PurePosixPath(name).stem if name else ""


def _suffix(uri: str) -> str:
    return PurePosixPath(uri_path(uri)).suffix.lower()


def format_of_name(uri: str) -> Format | None:
    """What a file of this name is read as where nothing else says it; None: its content decides."""
    return _SUFFIXES.get(_suffix(uri))


def read(source: Source) -> Parsed:
    """Title, text and blocks of a document. Blocking. Raises ReadError when it cannot be read."""
    if source.data is not None:
        if not source.data:
            raise ReadError(Unreadable.EMPTY, "the document has no bytes")
        form = source.format or _format_of_bytes(source.data, source.uri)
        if form is Format.PDF:
            return _finish(Format.PDF, *pdf.read(source.data))
        if form is Format.OTHER:
            content, changes = sanitize(checked(other.to_markdown(source.data, source.uri)))
            title, blocks = markdown.read(content)
            return _finish(Format.OTHER, content, title, blocks, changes)
        raw, _ = decode(source.data)
    else:
        raw = source.text or ""
        form = source.format
        if form in (Format.PDF, Format.OTHER):
            raise ReadError(Unreadable.BROKEN, "this format is sent as data, not as text")
    content, changes = sanitize(checked(raw))
    if not content.strip():
        raise ReadError(Unreadable.EMPTY, "nothing is left of the text")
    form = form or _format_of_text(content, source.uri)
    if form is Format.HTML:
        page = html.read(content)
        return _finish(Format.HTML, *page, changes)
    reader = markdown.read if form is Format.MARKDOWN else text.read
    title, blocks = reader(content)
    return _finish(form, content, title, blocks, changes)


def _finish(
    form: Format, content: str, title: str, blocks: list[Block], changes: tuple[str, ...] = ()
) -> Parsed:
    if not blocks:
        raise ReadError(Unreadable.NO_TEXT, "the document holds no text")
    return Parsed(form, content, tuple(blocks), title, changes)


def _format_of_bytes(data: bytes, uri: str) -> Format | None:
    head = data[:1024].lstrip()
    if head.startswith(b"%PDF-"):
        return Format.PDF
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        return Format.OTHER
    by_name = _SUFFIXES.get(_suffix(uri))
    # A name does not make bytes a PDF; its text form is found out later.
    return None if by_name in (Format.PDF, Format.OTHER) else by_name


def _format_of_text(content: str, uri: str) -> Format:
    by_name = _SUFFIXES.get(_suffix(uri))
    if by_name in (Format.TEXT, Format.MARKDOWN, Format.HTML):
        return by_name
    if _HTML.match(content[:4096]):
        return Format.HTML
    return Format.MARKDOWN if _MARKDOWN.search(content[:65_536]) else Format.TEXT
