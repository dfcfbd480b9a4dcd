"""Plain text: paragraphs between blank lines, headings where a line plainly is one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from services.retriever.reading.blocks import Block, Kind

_BLANK: Final = re.compile(r"\n[ \t\u3000]*(?:\n[ \t\u3000]*)+")
_NUMBERED: Final = re.compile(
    r"^(?:\d+(?:\.\d+)*\.?\s+\S|第[一二三四五六七八九十百零\d]+[章节条部分篇]|[一二三四五六七八九十]+、)"
)
_ENDS: Final = ("。", ".", "！", "!", "？", "?", "；", ";", "，", ",", "：", ":", "…")
_MAX_HEADING: Final = 60


def paragraphs(text: str, base: int = 0) -> Iterator[tuple[int, int]]:
    """Spans of paragraphs without their outer blanks; offsets are counted from `base`."""
    start = 0
    bounds = [(m.start(), m.end()) for m in _BLANK.finditer(text)] + [(len(text), len(text))]
    for stop, following in bounds:
        piece = text[start:stop]
        stripped = piece.strip()
        if stripped:
            left = start + len(piece) - len(piece.lstrip())
            yield base + left, base + left + len(stripped)
        start = following


def is_heading(line: str) -> bool:
    """A short numbered single line without an end mark: `3.2 Setup`, `第三章 部署`."""
    if "\n" in line or len(line) > _MAX_HEADING or line.endswith(_ENDS):
        return False
    return _NUMBERED.match(line) is not None


def read(text: str) -> tuple[str, list[Block]]:
    """Title ("" where the text names none) and blocks of a plain text."""
    blocks: list[Block] = []
    section: tuple[str, ...] = ()
    for start, end in paragraphs(text):
        body = text[start:end]
        if is_heading(body):
            section = (body,)
            blocks.append(Block(Kind.TITLE, body, start, end, section))
        else:
            blocks.append(Block(Kind.PARAGRAPH, body, start, end, section))
    return "", blocks
