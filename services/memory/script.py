"""Text as the rules read it: simplified characters, every one where it stood.

Rules are written once, in simplified Chinese. What they find is cut out of the text as it was said,
by the places of the match.
"""

from __future__ import annotations

from typing import Final

from services.search.simplified import simplify, simplify_characters

# What the dictionaries keep apart, or know as a character of its own.
_MORE: Final = str.maketrans("帐著妳裏甚", "账着你里什")


def folded(text: str) -> str:
    """`text` in simplified characters, as long as `text`."""
    if text.isascii():
        return text
    simple = simplify(text)
    if len(simple) != len(text):
        simple = simplify_characters(text)
    return simple.translate(_MORE)


def as_said(text: str, seen: str, part: str, start: int = 0) -> str:
    """What stands in `text` where `part` stands in `seen`, its folded form: at `start` or later,
    else anywhere; `part` itself where it does not."""
    at = seen.find(part, start)
    at = seen.find(part) if at < 0 else at
    return part if at < 0 else text[at : at + len(part)]
