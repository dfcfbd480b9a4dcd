# ruff: noqa: E501 - tables read better with one entry a line
"""Chinese time expressions."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from services.memory.timex import spans
from services.memory.timex.spans import Window

Match = re.Match[str]
_NUM: Final = r"(?:\d{1,4}|[一二两三四五六七八九十半几数]{1,3})"
_DIGITS: Final = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"两": 2, "几": 3, "数": 3}
_PART: Final = {
    "凌晨": (0, 6), "清晨": (5, 8), "早上": (6, 10), "早晨": (6, 10), "今早": (6, 10),
    "上午": (8, 12), "中午": (11, 14), "下午": (12, 18), "傍晚": (17, 20), "晚上": (18, 24),
    "夜里": (20, 24), "深夜": (22, 26), "半夜": (23, 28), "午夜": (23, 25), "晚": (18, 24),
    "早": (6, 10),
}  # fmt: skip
# Their twelve o'clock ends the day, and the hours after it are of the next one.
_NIGHT: Final = frozenset(["晚上", "夜里", "深夜", "半夜", "午夜", "晚"])
_SMALL_HOURS: Final = 5
_PARTS: Final = "|".join(_PART)
_CLOCK: Final = r"(?P<h>\d{1,2}|[一二两三四五六七八九十]{1,3})(?:[:：](?P<m>\d{2})|[点时](?P<half>半|钟|整)?(?:(?P<m2>\d{1,2})分?)?)"


def number(text: str) -> int:
    """Value of a small Chinese or Arabic number; 几 counts as 3."""
    if text.isdigit():
        return int(text)
    if "十" in text:
        tens, _, ones = text.partition("十")
        return _DIGITS.get(tens, 1) * 10 + _DIGITS.get(ones, 0)
    return _DIGITS.get(text[:1], 1)


_DAYS: Final = {
    "大前天": -3, "前天": -2, "昨天": -1, "昨日": -1, "昨晚": -1, "昨夜": -1, "今天": 0, "今日": 0,
    "今早": 0, "今晚": 0, "今晨": 0, "当天": 0, "明天": 1, "明日": 1, "明晚": 1, "明早": 1,
    "后天": 2, "大后天": 3,
}  # fmt: skip
_WEEK: Final = {"上上": -2, "上": -1, "这": 0, "本": 0, "下": 1, "下下": 2}
_YEARS: Final = {"前年": -2, "去年": -1, "今年": 0, "本年": 0, "明年": 1, "后年": 2, "大前年": -3}


def _of_day(hour: int, part: str) -> int:
    """The hour on a clock as one of the day that `part` belongs to; from 24 on it is the next."""
    if part in _NIGHT and (hour == 12 or hour < _SMALL_HOURS):
        return 24 + hour % 12
    if part in {"下午", "傍晚", *_NIGHT} and hour < 12:
        return hour + 12
    if part == "中午" and hour < 11:
        return hour + 12
    return 0 if part == "凌晨" and hour == 12 else hour


def _with_clock(window: Window, match: Match) -> Window:
    groups = match.groupdict()
    part, hour_text = groups.get("part") or "", groups.get("h")
    word = groups.get("word") or ""
    if not part and word and word[-1] in "早晚夜":
        part = {"早": "早上", "晚": "晚上", "夜": "晚上"}[word[-1]]
    if hour_text is None:
        if not part:
            return window
        low, high = _PART[part]
        start = window.start + timedelta(hours=low)
        return Window(start, window.start + timedelta(hours=high))
    hour = number(hour_text)
    minute = int(groups.get("m") or groups.get("m2") or (30 if groups.get("half") == "半" else 0))
    if hour > 24 or minute > 59:
        return window
    hour = _of_day(hour, part)
    start = window.start + timedelta(hours=hour, minutes=minute)
    return Window(start, start + timedelta(minutes=1), start, clock_known=True)


def _day(m: Match, now: datetime) -> Window | None:
    return _with_clock(spans.days(now, _DAYS[m["word"]]), m)


def _names_year(m: Match) -> bool:
    """Whether "2020年" is the year of that name: nobody counts that many."""
    return m["unit"] == "年" and re.fullmatch(r"(?:19|20)\d\d", m["n"]) is not None


def _ago(m: Match, now: datetime) -> Window | None:
    if _names_year(m):
        return None
    count, unit, back = number(m["n"]), m["unit"], m["dir"] in {"前", "之前", "以前"}
    half = m["n"] == "半"
    step = -1 if back else 1
    if unit in {"天", "日"}:
        return spans.days(now, step * count)
    if "周" in unit or "星期" in unit or "礼拜" in unit:
        centre = spans.day(now) + timedelta(weeks=step * count)
        return Window(centre - timedelta(days=3), centre + timedelta(days=4), centre)
    if "月" in unit:
        centre = (
            spans.day(now) + timedelta(days=15 * step)
            if half
            else spans.shift_months(spans.day(now), step * count)
        )
        return Window(centre - timedelta(days=15), centre + timedelta(days=15), centre)
    if unit == "年":
        months = 6 if half else 12 * count
        centre = spans.shift_months(spans.day(now), step * months)
        return Window(centre - timedelta(days=90), centre + timedelta(days=90), centre)
    hours = timedelta(hours=0.5 if half else count) if "时" in unit else timedelta(minutes=count)
    at = now + step * hours
    return Window(at - hours / 4, at + hours / 4, at)


def _recent(m: Match, now: datetime) -> Window | None:
    if _names_year(m):
        return None
    count = number(m["n"])
    unit = m["unit"]
    if "月" in unit:
        start = spans.shift_months(spans.day(now), -count)
    elif unit == "年":
        start = spans.shift_months(spans.day(now), -12 * count)
    else:
        start = spans.day(now) - timedelta(
            days=count * (7 if unit in {"周", "星期", "个星期"} else 1)
        )
    # "前两天" leaves today out, "最近两天" does not.
    end = spans.day(now) if m["word"] == "前" else now
    return Window(start, max(end, start + timedelta(hours=1)))


def _week(m: Match, now: datetime) -> Window | None:
    offset = _WEEK[m["word"]]
    name = m["d"]
    if not name:
        return spans.week(now, offset)
    if name == "末":
        start = spans.week(now, offset).start + timedelta(days=5)
        return Window(start, start + timedelta(days=2))
    return _with_clock(
        spans.weekday(now, offset, "一二三四五六日天".index(name) % 7 if name != "天" else 6), m
    )


def _weekday(m: Match, now: datetime) -> Window | None:
    """A day of the week by itself: the last one, today included; the next one where the words after
    it look ahead."""
    ahead = m["ahead"] is not None
    if m["d"] == "末":
        week = spans.week(now, 0 if now.weekday() >= 5 or ahead else -1)
        start = week.start + timedelta(days=5)
        return Window(start, start + timedelta(days=2))
    back = (now.weekday() - "一二三四五六日".index(m["d"].replace("天", "日"))) % 7
    return _with_clock(spans.days(now, (7 - back) % 7 if ahead else -back), m)


def _month(m: Match, now: datetime) -> Window | None:
    window = spans.month(now, _WEEK[m["word"]])
    if m["d"]:
        return spans.date_window(now, window.start.year, window.start.month, number(m["d"]))
    return _third(window, m["third"])


def _third(window: Window, third: str | None) -> Window:
    if not third:
        return window
    first = {"初": 0, "中": 10, "中旬": 10, "上旬": 0, "下旬": 20, "底": 20, "末": 20}[third]
    start = window.start + timedelta(days=first)
    return Window(start, window.end if first == 20 else start + timedelta(days=10))


def _year(m: Match, now: datetime) -> Window | None:
    offset = _YEARS[m["word"]]
    if not m["mo"]:
        return _part_of_year(spans.year(now, offset), m["third"])
    month = number(m["mo"])
    if not 1 <= month <= 12:
        return None
    return spans.date_window(now, now.year + offset, month, number(m["d"]) if m["d"] else None)


def _part_of_year(window: Window, part: str | None) -> Window:
    if not part:
        return window
    first, count = {
        "初": (0, 2), "年初": (0, 2), "年中": (5, 2), "年底": (10, 2), "底": (10, 2), "上半年": (0, 6),
        "下半年": (6, 6), "春天": (2, 3), "夏天": (5, 3), "秋天": (8, 3), "冬天": (11, 3),
    }[part]  # fmt: skip
    start = spans.shift_months(window.start, first)
    return Window(start, spans.shift_months(start, count))


def _absolute(m: Match, now: datetime) -> Window | None:
    year = int(m["y"]) if m["y"] else None
    month = number(m["mo"]) if m["mo"] else None
    day = number(m["d"]) if m["d"] else None
    if year is not None and year < 100:
        year += 2000
    if month is None:
        return (
            spans.year(now, (year or now.year) - now.year)
            if year and 1900 <= year <= 2100
            else None
        )
    if not 1 <= month <= 12 or (day or 1) > 31 or (not year and not day and not m["third"]):
        return (
            None
            if year or day or not 1 <= month <= 12
            else spans.date_window(now, spans.nearest_year(now, month, None), month, None)
        )
    year = year or spans.nearest_year(now, month, day)
    window = spans.date_window(now, year, month, day)
    if window is None:
        return None
    return _with_clock(window, m) if day else _third(window, m["third"])


def _beside(m: Match, now: datetime) -> Window | None:
    """Before a year or month: as long a time that ends with its beginning. After it: from its end
    until now; since it: from its beginning."""
    year = int(m["y"])
    month = number(m["mo"]) if m["mo"] else None
    if month is None:
        named = spans.year(now, year - now.year)
    else:
        found = spans.date_window(now, year, month, None)
        if found is None:
            return None
        named = found
    if m["side"].endswith("前"):
        return Window(spans.shift_months(named.start, -1 if month else -12), named.start)
    start = named.end if m["side"].endswith("后") else named.start
    return Window(start, max(now, spans.shift_months(start, 1 if month else 12)), start)


def _iso(m: Match, now: datetime) -> Window | None:
    return spans.date_window(now, int(m["y"]), int(m["mo"]), int(m["d"]))


def _clock(m: Match, now: datetime) -> Window | None:
    return _with_clock(spans.days(now, 0), m)


_TAIL: Final = rf"(?:的?(?P<part>{_PARTS}))?(?:{_CLOCK})?"
RULES: Final[tuple[tuple[re.Pattern[str], Callable[[Match, datetime], Window | None]], ...]] = (
    (
        re.compile(
            rf"(?<!\d)(?:(?P<y>(?:19|20)?\d{{2}})年)?(?<!\d)(?P<mo>\d{{1,2}}|十[一二]?|[一二三四五六七八九])月(?!饼|子|嫂|薪|经|球|亮|天(?![气天空]))"
            rf"(?:份)?(?:(?P<d>\d{{1,2}}|[一二三四五六七八九十]{{1,3}})[日号號]|(?P<third>初|中旬|上旬|下旬|底|末))?{_TAIL}"
        ),
        _absolute,
    ),
    (
        re.compile(r"(?<!\d)(?P<y>(?:19|20)\d{2})年(?P<mo>(?!))?(?P<d>(?!))?(?P<third>(?!))?"),
        _absolute,
    ),
    (
        re.compile(
            r"(?<!\d)(?P<y>(?:19|20)\d{2})年(?:(?P<mo>\d{1,2}|十[一二]?|[一二三四五六七八九])月份?)?"
            r"(?P<side>[之以]前|前(?![后半\d一二三四五六七八九十两几])|[之以]后|后(?![来半\d一二三四五六七八九十两几])|以来|起)"
        ),
        _beside,
    ),
    (
        re.compile(
            r"(?<![\d.])(?P<y>(?:19|20)\d\d)[-/.](?P<mo>\d{1,2})[-/.](?P<d>\d{1,2})(?![\d.])"
        ),
        _iso,
    ),
    (re.compile(rf"(?P<word>{'|'.join(sorted(_DAYS, key=len, reverse=True))}){_TAIL}"), _day),
    (
        re.compile(
            rf"(?P<word>前|最近|近|过去|这|近来)的?(?P<n>{_NUM})(?P<unit>天|日|周|个星期|星期|个月|年)(?![前后])"
        ),
        _recent,
    ),
    (
        re.compile(
            rf"(?<![第前近去这])(?P<n>{_NUM})(?P<unit>天|日|周|个星期|星期|个礼拜|个月|年|个小时|小时|个钟头|分钟)"
            r"(?:多)?(?P<dir>之前|以前|前|之后|以后|后)"
        ),
        _ago,
    ),
    (
        re.compile(
            rf"(?P<word>上上|下下|(?<!上)下(?!个?周转)|上|这|本)个?(?:周|星期|礼拜)(?P<d>[一二三四五六日天末])?{_TAIL}"
        ),
        _week,
    ),
    (
        # Not of every week, not a range, a list or a count of them.
        re.compile(
            r"(?<![每逢到至、和或叫姓第上下这本整\d一二两三四五六七八九十几半])(?<!每个)(?:周|星期|礼拜)"
            r"(?P<d>[一二三四五六日天](?![一二三四五六日天年个到至、~-]|[和或]?[每周星礼])|末(?!愉快|快乐))"
            rf"{_TAIL}(?P<ahead>(?=[^，。！？；,;!?\n]{{0,8}}?(?:要(?!求)|打算|准备|计划|记得|提醒|见(?![了过到])|再)))?"
        ),
        _weekday,
    ),
    (
        re.compile(
            r"(?P<word>上上|下下|上|下|这|本)个?月(?!饼|子|嫂|薪|经|球|亮)(?:份)?(?:(?P<d>\d{1,2}|[一二三四五六七八九十]{1,3})[日号]"
            r"|(?P<third>初|中旬|上旬|下旬|底|末))?"
        ),
        _month,
    ),
    (
        re.compile(
            r"(?P<word>大前年|前年|去年|今年|本年|明年|后年)(?:的?(?P<mo>\d{1,2}|十[一二]?|[一二三四五六七八九])月(?:份)?"
            r"(?:(?P<d>\d{1,2})[日号])?|的?(?P<third>年初|年中|年底|上半年|下半年|春天|夏天|秋天|冬天|初|底))?"
        ),
        _year,
    ),
    (re.compile(rf"(?P<part>{_PARTS}){_CLOCK}"), _clock),
)
HINT: Final = re.compile(r"[年月日号天周晚早夜晨午点]|星期|礼拜|小时|分钟|\d[-/.:：]\d")
