"""Values and calendar arithmetic of time expressions."""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Span:
    """One resolved expression: [start, end), the likeliest instant in it, and where it stood.

    `day_known` is False for windows of more than a day ("last month").
    """

    start: datetime
    end: datetime
    about: datetime
    text: str
    at: int
    day_known: bool = False
    clock_known: bool = False

    @property
    def stop(self) -> int:
        """Offset after the expression."""
        return self.at + len(self.text)


@dataclass(frozen=True)
class Window:
    """A span before it is tied to its words."""

    start: datetime
    end: datetime
    about: datetime | None = None
    clock_known: bool = False

    def tied(self, text: str, at: int) -> Span:
        """The span of the words `text` at offset `at`."""
        about = self.about or self.start + (self.end - self.start) / 2
        day = self.end - self.start <= timedelta(days=1, hours=1)
        if day and self.about is None:
            about = self.start
        return Span(self.start, self.end, about, text, at, day, self.clock_known)


def day(moment: datetime) -> datetime:
    """Midnight that begins the day of `moment`, in its zone."""
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def days(moment: datetime, start: int, count: int = 1) -> Window:
    """`count` days from `start` days after `moment`."""
    first = day(moment) + timedelta(days=start)
    return Window(first, first + timedelta(days=count))


def week(moment: datetime, offset: int) -> Window:
    """The week (from Monday) `offset` weeks from that of `moment`."""
    monday = day(moment) - timedelta(days=moment.weekday()) + timedelta(weeks=offset)
    about = None if offset == 0 else day(moment) + timedelta(weeks=offset)
    return Window(monday, monday + timedelta(weeks=1), about)


def weekday(moment: datetime, offset: int, number: int) -> Window:
    """Day `number` (0 = Monday) of the week `offset` weeks from that of `moment`."""
    start = week(moment, offset).start + timedelta(days=number)
    return Window(start, start + timedelta(days=1))


def shift_months(moment: datetime, months: int) -> datetime:
    """The same day `months` later, or the last one of a shorter month."""
    index = moment.year * 12 + moment.month - 1 + months
    year, month = divmod(index, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return moment.replace(year=year, month=month + 1, day=min(moment.day, last))


def month(moment: datetime, offset: int) -> Window:
    """The calendar month `offset` months from that of `moment`."""
    start = shift_months(day(moment).replace(day=1), offset)
    return Window(start, shift_months(start, 1))


def year(moment: datetime, offset: int) -> Window:
    """The calendar year `offset` years from that of `moment`."""
    start = day(moment).replace(year=moment.year + offset, month=1, day=1)
    return Window(start, start.replace(year=start.year + 1))


def date_window(moment: datetime, year_: int, month_: int, day_: int | None) -> Window | None:
    """A named day or month in the zone of `moment`; None if there is no such date."""
    try:
        start = day(moment).replace(year=year_, month=month_, day=day_ or 1)
    except ValueError:
        return None
    end = start + timedelta(days=1) if day_ else shift_months(start, 1)
    return Window(start, end)


def nearest_year(moment: datetime, month_: int, day_: int | None, future: bool = False) -> int:
    """The year that a date without one means: the latest not after `moment` (a day's grace), or
    the next."""
    for year_ in (moment.year, moment.year - 1, moment.year - 2, moment.year - 3):
        window = date_window(moment, year_, month_, day_)
        if window and (window.start <= moment + timedelta(days=1) or future):
            return year_
    return moment.year
