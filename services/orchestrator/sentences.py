"""Sentences of Chinese and English text, with their places."""

from __future__ import annotations

import re
from dataclasses import dataclass

# A sentence ends at Chinese stops, at Western stops before white space, and at line ends. A
# decimal point, a version
# or an abbreviation inside a word does not end it.
_END = re.compile(r"[。！？；]+[”’」』）)]*|[.!?]+[\"')\]]*(?=\s|$)|\n+")
# What stands before the stop of a list item's label: "1." says nothing, the sentence follows it.
_LABEL = re.compile(r"[ \t]*(?:[-*+>#]+[ \t]+)*[*_]{0,2}(?:\d{1,3}|[A-Za-z]|[ivx]{1,5}|[IVX]{1,5})")
_CITATION = re.compile(r"\s*(?:\[E\d{1,3}\])+[.。]?")


@dataclass(frozen=True)
class Sentence:
    """A sentence and where it stands, in characters."""

    text: str
    start: int
    end: int


def split(text: str) -> list[Sentence]:
    """The sentences of `text`, trimmed; citations after a stop belong to the
    sentence before them.
    """
    result: list[Sentence] = []
    start = 0
    for match in _END.finditer(text):
        if match.start() < start or _labels(text, match):
            continue
        end = match.end()
        trailing = _CITATION.match(text, end)
        if trailing:
            end = trailing.end()
        _add(result, text, start, end)
        start = end
    _add(result, text, start, len(text))
    return result


def _labels(text: str, stop: re.Match[str]) -> bool:
    """Whether a stop ends the label of a list item that has its text on the same line."""
    if stop.group() != ".":
        return False
    line = text.rfind("\n", 0, stop.start()) + 1
    rest = text[stop.end() :].partition("\n")[0]
    return bool(rest.strip()) and bool(_LABEL.fullmatch(text, line, stop.start()))


def _add(result: list[Sentence], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    trimmed = piece.strip()
    if trimmed:
        offset = start + len(piece) - len(piece.lstrip())
        result.append(Sentence(trimmed, offset, offset + len(trimmed)))
