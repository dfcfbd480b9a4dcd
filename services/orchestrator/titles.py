"""A title is text of whoever stored the document: one line, inside marks that it cannot end."""

from __future__ import annotations

import re

_TITLE_CHARS = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MARKS = str.maketrans(
    {"《": "〈", "》": "〉", "“": "‘", "”": "’", '"': "'", "<": "‹", ">": "›", "＜": "‹", "＞": "›"}
)


def inline(title: str, limit: int = _TITLE_CHARS) -> str:
    """`title` in one line of at most `limit` characters, without the marks that quote titles."""
    line = " ".join(_CONTROL.sub(" ", title).split()).translate(_MARKS)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
