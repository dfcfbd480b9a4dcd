# ruff: noqa: E501 - tables read better with one entry a line
"""English time expressions."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from services.common.unicode import mixed
from services.memory.timex import spans
from services.memory.timex.spans import Window

Match = re.Match[str]
_MONTHS: Final = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTH: Final = "|".join([*_MONTHS, *(m[:3] for m in _MONTHS), "sept"])
_DAYS: Final = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_WORDS: Final = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "couple": 2, "few": 3, "several": 4,
}  # fmt: skip
_NUM: Final = rf"(?:\d{{1,3}}|(?:a )?(?:couple|few)(?: of)?|several|{'|'.join(w for w in _WORDS if len(w) < 8)})"
_UNIT: Final = r"(?:day|week|fortnight|month|year|hour|minute)s?"
_SEASONS: Final = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_RELATIVE: Final = {
    "the day before yesterday": -2, "day before yesterday": -2, "yesterday": -1, "last night": -1,
    "today": 0, "tonight": 0, "this morning": 0, "this afternoon": 0, "this evening": 0,
    "tomorrow": 1, "the day after tomorrow": 2, "day after tomorrow": 2,
}  # fmt: skip
_PART: Final = {"morning": (6, 12), "afternoon": (12, 18), "evening": (17, 22), "night": (18, 24)}
_CLOCK: Final = (
    r"(?:\s+(?:at|around|by)\s+(?P<h>\d{1,2})(?::(?P<m>\d{2}))?\s*(?P<ap>[ap]\.?m\b\.?)?)?"
)


def _number(text: str) -> int:
    text = text.lower().removeprefix("a ").removesuffix(" of") if len(text) > 2 else text.lower()
    return int(text) if text.isdigit() else _WORDS.get(text, 1)


def _with_clock(window: Window, m: Match) -> Window:
    groups = m.groupdict()
    if groups.get("h"):
        hour, minute = int(groups["h"]), int(groups.get("m") or 0)
        half = (groups.get("ap") or "").lower().replace(".", "")
        if not half and not groups.get("m"):
            return window
        hour = hour % 12 + (12 if half == "pm" else 0) if half else hour
        if hour > 23 or minute > 59:
            return window
        start = window.start + timedelta(hours=hour, minutes=minute)
        return Window(start, start + timedelta(minutes=1), start, clock_known=True)
    part = (groups.get("part") or "").lower()
    if part in _PART:
        low, high = _PART[part]
        return Window(window.start + timedelta(hours=low), window.start + timedelta(hours=high))
    return window


def _relative(m: Match, now: datetime) -> Window | None:
    word = m["word"].lower()
    window = spans.days(now, _RELATIVE[word])
    part = word.rsplit(" ", 1)[-1]
    if part in _PART:
        low, high = _PART[part]
        return Window(window.start + timedelta(hours=low), window.start + timedelta(hours=high))
    return _with_clock(window, m)


def _offset(count: int, unit: str, now: datetime, step: int) -> Window:
    unit = unit.lower().rstrip("s")
    midnight = spans.day(now)
    if unit == "day":
        return spans.days(now, step * count)
    if unit in {"week", "fortnight"}:
        centre = midnight + timedelta(weeks=step * count * (2 if unit == "fortnight" else 1))
        return Window(centre - timedelta(days=3), centre + timedelta(days=4), centre)
    if unit == "month":
        centre = spans.shift_months(midnight, step * count)
        return Window(centre - timedelta(days=15), centre + timedelta(days=15), centre)
    if unit == "year":
        centre = spans.shift_months(midnight, 12 * step * count)
        return Window(centre - timedelta(days=90), centre + timedelta(days=90), centre)
    length = timedelta(hours=count) if unit == "hour" else timedelta(minutes=count)
    at = now + step * length
    return Window(at - length / 4, at + length / 4, at)


def _ago(m: Match, now: datetime) -> Window | None:
    if m["half"]:
        unit, count = _HALVES[m["unit"].lower().rstrip("s")]
        return _offset(count, unit, now, -1)
    return _offset(_number(m["n"]), m["unit"], now, -1)


_HALVES: Final = {
    "day": ("hour", 12), "week": ("day", 3), "fortnight": ("week", 1), "month": ("day", 15),
    "year": ("month", 6), "hour": ("minute", 30), "minute": ("minute", 1),
}  # fmt: skip


def _ahead(m: Match, now: datetime) -> Window | None:
    return _offset(_number(m["n"]), m["unit"], now, 1)


def _past(m: Match, now: datetime) -> Window | None:
    window = _offset(_number(m["n"] or "a"), m["unit"], now, -1)
    return Window(window.about or window.start, now)


def _period(m: Match, now: datetime) -> Window | None:
    offset = {"last": -1, "this": 0, "next": 1, "previous": -1, "past": -1}[m["which"].lower()]
    unit = m["unit"].lower()
    if unit == "week":
        return spans.week(now, offset)
    if unit == "month":
        return spans.month(now, offset)
    if unit == "year":
        return spans.year(now, offset)
    if unit == "weekend":
        start = spans.week(now, offset).start + timedelta(days=5)
        return Window(start, start + timedelta(days=2))
    if unit in _SEASONS:
        return _season(unit, offset, now)
    return _named_day(m, now, offset, unit)


def _season(unit: str, offset: int, now: datetime) -> Window:
    first = spans.day(now).replace(month=_SEASONS[unit], day=1)
    if offset < 0:
        while spans.shift_months(first, 3) > now:
            first = spans.shift_months(first, -12)
    elif offset > 0 and first <= now:
        first = spans.shift_months(first, 12)
    return Window(first, spans.shift_months(first, 3))


def _named_day(m: Match, now: datetime, offset: int, unit: str) -> Window:
    number = next(i for i, d in enumerate(_DAYS) if d.startswith(unit[:3]))
    back = (now.weekday() - number) % 7
    if offset < 0:
        start = spans.days(now, -(back or 7))
    elif offset == 0:
        start = spans.weekday(now, 0, number)
    else:
        start = spans.days(now, (7 - back) if back else 7)
    return _with_clock(start, m)


def _weekday(m: Match, now: datetime) -> Window | None:
    number = next(i for i, d in enumerate(_DAYS) if d == m["unit"].lower())
    return _with_clock(spans.days(now, -((now.weekday() - number) % 7)), m)


def _month_of(name: str) -> int:
    return next(i for i, month in enumerate(_MONTHS, 1) if month.startswith(name[:3].lower()))


def _absolute(m: Match, now: datetime) -> Window | None:
    month = _month_of(m["mon"])
    day = int(m["d"]) if m["d"] else None
    if day is None and not m["y"] and not m.groupdict().get("prep"):
        return None
    # The words "may" and "march" are verbs unless they are written as names.
    if m["mon"] in {"may", "march"} and not m["y"]:
        return None
    year = int(m["y"]) if m["y"] else spans.nearest_year(now, month, day)
    window = spans.date_window(now, year, month, day)
    return _with_clock(window, m) if window and day else window


def _iso(m: Match, now: datetime) -> Window | None:
    window = spans.date_window(now, int(m["y"]), int(m["mo"]), int(m["d"]))
    return _with_clock(window, m) if window else None


def _year(m: Match, now: datetime) -> Window | None:
    return spans.year(now, int(m["y"]) - now.year)


RULES: Final[tuple[tuple[re.Pattern[str], Callable[[Match, datetime], Window | None]], ...]] = (
    tuple(
        (mixed(pattern, re.IGNORECASE), make)
        for pattern, make in (
            (
                rf"(?<![\d.-])(?P<y>(?:19|20)\d\d)[-/](?P<mo>\d{{1,2}})[-/](?P<d>\d{{1,2}})(?![\d-]){_CLOCK}",
                _iso,
            ),
            (
                rf"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?\s+(?P<mon>{_MONTH})\b\.?(?:,?\s+(?P<y>(?:19|20)\d\d))?{_CLOCK}",
                _absolute,
            ),
            (
                rf"\b(?:(?P<prep>in|since|during|last|until|by|of)\s+)?(?P<mon>{_MONTH})\b\.?(?:\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?![\d:]))?(?:,?\s+(?P<y>(?:19|20)\d\d))?{_CLOCK}",
                _absolute,
            ),
            (
                rf"\b(?P<word>{'|'.join(sorted(_RELATIVE, key=len, reverse=True))})\b(?:\s+(?P<part>morning|afternoon|evening|night))?{_CLOCK}",
                _relative,
            ),
            (
                rf"\b(?:(?P<half>half)\s+)?(?P<n>{_NUM})\s+(?P<unit>{_UNIT})\s+(?:ago|earlier|back)\b",
                _ago,
            ),
            (rf"\bin\s+(?P<n>{_NUM})\s+(?P<unit>{_UNIT})\b(?!\s+ago)", _ahead),
            (
                rf"\b(?:in |over |during )?the (?:last|past)\s+(?:(?P<n>{_NUM})\s+)?(?P<unit>(?:day|week|month|year)s?)\b",
                _past,
            ),
            (
                r"\b(?:last|past)\s+(?P<n>\d{1,3}|two|three|four|five|six|seven|few|couple of)\s+(?P<unit>(?:day|week|month|year)s)\b",
                _past,
            ),
            (
                rf"\b(?P<which>last|this|next|previous|past)\s+(?P<unit>weekend|week|month|year|{'|'.join(_SEASONS)}|{'|'.join(_DAYS)})\b(?:\s+(?P<part>morning|afternoon|evening|night))?{_CLOCK}",
                _period,
            ),
            (
                rf"\bon\s+(?P<unit>{'|'.join(_DAYS)})\b(?:\s+(?P<part>morning|afternoon|evening|night))?{_CLOCK}",
                _weekday,
            ),
            (
                r"\b(?:in|since|during|from|until|by|of|year)\s+(?P<y>(?:19|20)\d\d)\b(?![-/.:]\d)",
                _year,
            ),
        )
    )
)
HINT: Final = mixed(
    rf"\d{{4}}|\b(?:today|tonight|yesterday|tomorrow|ago|last|past|this|next|on|in|earlier|back|morning|{_MONTH})\b",
    re.IGNORECASE,
)
