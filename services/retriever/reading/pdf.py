"""PDF with a text layer, by `pypdf`: paragraphs per page, repeated headers and footers left out."""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections import Counter
from typing import Final

from services.retriever.reading import text as plain
from services.retriever.reading.blocks import Block, Kind, ReadError, Unreadable, checked
from services.retriever.reading.sanitize import sanitize

_MAX_PAGES: Final = 5_000
# pypdf reports damage as whatever the damaged object led to.
_DAMAGE: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
_HYPHEN: Final = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
_NUMBER: Final = re.compile(r"\d+")
_SENTENCE_END: Final = (".", "。", "!", "?", "！", "？", ":", "：", ";", "；")


def read(data: bytes) -> tuple[str, str, list[Block]]:
    """Text, title and blocks. Raises ReadError for encrypted, broken and scanned files."""
    title, pages = _pages(data)
    cleaned = [_page_text(lines) for lines in _without_running_lines(pages)]
    parts: list[str] = []
    blocks: list[Block] = []
    at = 0
    section: tuple[str, ...] = ()
    for number, page in enumerate(cleaned, start=1):
        if not page.strip():
            continue
        for start, end in plain.paragraphs(page):
            body = page[start:end]
            if plain.is_heading(body):
                section = (body,)
                kind = Kind.TITLE
            else:
                kind = Kind.PARAGRAPH
            blocks.append(Block(kind, body, at + start, at + end, section, page=number))
        parts.append(page)
        at += len(page) + 2
    if not blocks:
        raise ReadError(Unreadable.NO_TEXT, "the PDF has no text layer (a scan?)")
    return "\n\n".join(parts), title, blocks


def _pages(data: bytes) -> tuple[str, list[list[str]]]:
    import pypdf
    from pypdf.errors import DependencyError, PyPdfError

    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        # Many PDFs are encrypted with an empty user password: any viewer opens them.
        if reader.is_encrypted and not reader.decrypt(""):
            raise ReadError(Unreadable.ENCRYPTED, "the PDF is encrypted")
        if len(reader.pages) > _MAX_PAGES:
            raise ReadError(Unreadable.TOO_LARGE, f"more than {_MAX_PAGES:,} pages")
        pages: list[list[str]] = []
        size = 0
        for page in reader.pages:
            content = checked(sanitize(page.extract_text() or "")[0], size)
            size += len(content)
            pages.append(content.split("\n"))
        title = str((reader.metadata.title if reader.metadata else None) or "").strip()
    except DependencyError as error:
        raise ReadError(
            Unreadable.NO_CONVERTER, "the PDF needs a decoder that is missing"
        ) from error
    except (PyPdfError, *_DAMAGE) as error:
        raise ReadError(Unreadable.BROKEN, "the PDF is damaged") from error
    return sanitize(title)[0][:500], pages


def _without_running_lines(pages: list[list[str]]) -> list[list[str]]:
    """Pages without lines that stand at the edge of most pages (page numbers, running titles)."""
    if len(pages) < 4:
        return pages
    edges: Counter[str] = Counter()
    for lines in pages:
        edges.update({_NUMBER.sub("#", x.strip()) for x in [*lines[:2], *lines[-2:]] if x.strip()})
    running = {line for line, n in edges.items() if n > len(pages) * 0.6}
    return [
        [
            x
            for i, x in enumerate(lines)
            if not ((i < 2 or i >= len(lines) - 2) and _NUMBER.sub("#", x.strip()) in running)
        ]
        for lines in pages
    ]


def _page_text(lines: list[str]) -> str:
    """Lines of one layout paragraph joined: a PDF breaks lines where the page ends."""
    out: list[str] = []
    widest = max((len(x) for x in lines), default=0)
    for line in lines:
        stripped = line.strip()
        if not stripped:
            out.append("\n\n")
        elif len(stripped) < widest * 0.7 and stripped.endswith(_SENTENCE_END):
            out.append(stripped + "\n\n")
        elif plain.is_heading(stripped):
            out.append("\n\n" + stripped + "\n\n")
        else:
            out.append(stripped + "\n")
    return _HYPHEN.sub("", "".join(out)).strip()
