"""Dates inside texts, normalised so that `5月4号`, `2023-05-04` and `4 May, 2023` meet.

A date becomes the tokens `@MM-DD` (or `@MM` for a month alone), `@MM` and the year: a question
that names a day then finds the turns of that day whichever way either of them was written.
"""

from __future__ import annotations

import re
from typing import Final

_NAMES: Final = (
    "january february march april may june july august september october november december"
)
_MONTHS: Final = tuple(_NAMES.split())
_MONTH: Final = "|".join(f"{m}|{m[:3]}" for m in _MONTHS) + "|sept"

_PATTERNS: Final = (
    # 2023-05-04, 2023/5/4, 2023.05.04
    re.compile(r"(?<!\d)(?P<y>(?:19|20)\d\d)[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)"),
    # 2023年5月4日, 5月4号, 2023年5月
    re.compile(
        r"(?:(?<!\d)(?P<y>(?:19|20)\d\d)年)?(?<!\d)(?P<m>\d{1,2})月(?:(?P<d>\d{1,2})[日号號])?"
    ),
    # 4 May 2023, 4th of May, 2023
    re.compile(
        rf"(?<!\w)(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?\s+(?P<mon>{_MONTH})\b\.?"
        rf"(?:,?\s+(?P<y>(?:19|20)\d\d))?(?!\d)",
        re.IGNORECASE,
    ),
    # May 4, 2023; May 4th; May 2023
    re.compile(
        rf"(?<!\w)(?P<mon>{_MONTH})\b\.?(?:\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?!\d))?"
        rf"(?:,?\s+(?P<y>(?:19|20)\d\d))?(?!\d)",
        re.IGNORECASE,
    ),
)
# Cheap test that spares most texts the four patterns above.
_HINT: Final = re.compile(r"\d\s*[-/.月]\s*\d|\d月|" + rf"\b(?:{_MONTH})\b", re.IGNORECASE)


def _month(groups: dict[str, str | None]) -> int:
    name = groups.get("mon")
    if name is None:
        return int(groups["m"] or 0)
    return next(i for i, m in enumerate(_MONTHS, 1) if m.startswith(name[:3].lower()))


def _tokens_of(groups: dict[str, str | None]) -> list[str]:
    month, day = _month(groups), int(groups["d"] or 0)
    year = groups["y"]
    numeric = groups.get("mon") is None
    # The lone word "may" or "march" is no date; `5月` is one.
    if not 1 <= month <= 12 or day > 31 or not (day or year or numeric):
        return []
    out = [f"@{month:02d}"]
    if day:
        out.append(f"@{month:02d}-{day:02d}")
    if year:
        out.append(year)
    return out


def date_tokens(text: str) -> tuple[list[str], str]:
    """(date tokens in order, the text with the dates blanked out); impossible dates are left."""
    if not _HINT.search(text):
        return [], text
    out: list[str] = []
    for pattern in _PATTERNS:
        pieces: list[str] = []
        end = 0
        for match in pattern.finditer(text):
            tokens = _tokens_of(match.groupdict())
            if tokens:
                out.extend(tokens)
                pieces.append(text[end : match.start()] + " " * len(match.group()))
                end = match.end()
        text = "".join(pieces) + text[end:]
    return out, text
