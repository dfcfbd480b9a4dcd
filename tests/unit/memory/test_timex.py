"""Time expressions of both languages."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from services.memory.timex import resolve, zone_of

SAID = datetime(2023, 5, 24, 10, 0, tzinfo=UTC)  # a Wednesday, 18:00 in Shanghai


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("I went to Paris last week", "2023-05-15", "2023-05-21"),
        ("met on 13 July 2024", "2024-07-13", "2024-07-13"),
        ("July 13th, 2024", "2024-07-13", "2024-07-13"),
        ("上个月我去了北京", "2023-04-01", "2023-04-30"),
        ("前两天买的", "2023-05-22", "2023-05-23"),
        ("2020年以前我在腾讯工作", "2019-01-01", "2019-12-31"),
        ("2020年前我在腾讯工作", "2019-01-01", "2019-12-31"),
        ("1999年前后的事", "1999-01-01", "1999-12-31"),
        ("2020年5月之前", "2020-04-01", "2020-04-30"),
        ("2021年后三个月", "2021-01-01", "2021-12-31"),
        ("两天前买的", "2023-05-22", "2023-05-22"),
        ("4月18日见面", "2023-04-18", "2023-04-18"),
        ("5月4号", "2023-05-04", "2023-05-04"),
        ("2023年5月4日", "2023-05-04", "2023-05-04"),
        ("去年10月", "2022-10-01", "2022-10-31"),
        ("in 2019 I moved", "2019-01-01", "2019-12-31"),
        ("since March 2021", "2021-03-01", "2021-03-31"),
        ("我last week去了巴黎", "2023-05-15", "2023-05-21"),
        ("在13 July 2024见的", "2024-07-13", "2024-07-13"),
        ("周五我去了北京", "2023-05-19", "2023-05-19"),
        ("星期三开了会", "2023-05-24", "2023-05-24"),
        ("禮拜天爬山了", "2023-05-21", "2023-05-21"),
        ("周五要去北京", "2023-05-26", "2023-05-26"),
        ("周三见", "2023-05-24", "2023-05-24"),
        ("周末我去了苏州", "2023-05-20", "2023-05-21"),
        ("周末打算去苏州", "2023-05-27", "2023-05-28"),
        ("next Monday", "2023-05-29", "2023-05-29"),
        ("下周三", "2023-05-31", "2023-05-31"),
        ("a couple of days ago", "2023-05-22", "2023-05-22"),
        ("yesterday", "2023-05-23", "2023-05-23"),
        ("22年3月", "2022-03-01", "2022-03-31"),
        ("half a year ago", "2022-11-09", "2022-12-08"),
        ("五月天气不错", "2023-05-01", "2023-05-31"),
        ("十二月二十五日", "2022-12-25", "2022-12-25"),
    ],
)
def test_t07_windows(text: str, first: str, last: str) -> None:
    (span,) = resolve(text, SAID, "Asia/Shanghai")
    assert span.start.date() == date.fromisoformat(first)
    days = (span.end - span.start).days
    assert span.start.date().toordinal() + days - 1 == date.fromisoformat(last).toordinal()


@pytest.mark.parametrize(
    "text",
    [
        "port 9077 is open",
        "we march on",
        "I may go",
        "version 2019 of it",
        "R6900 G5",
        "",
        "第二天",
        "12月饼",
        "上个月饼坏了",
        "上下周转",
        "我最喜欢的乐队是五月天",
        "每周五开会",
        "每个星期三跑步",
        "周一到周五上班",
        "周一、周三和周五上课",
        "我叫周一鸣",
        "一周五天",
        "周末愉快",
    ],
)
def test_t07_what_is_no_time(text: str) -> None:
    assert resolve(text, SAID, "Asia/Shanghai") == []


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("2019年之后我一直住在上海", "2020-01-01"), ("2019年以後", "2020-01-01"),
        ("2019年后我一直住在上海", "2020-01-01"), ("2019年以来", "2019-01-01"),
        ("2019年11月起", "2019-11-01"), ("从2019年11月之后", "2019-12-01"),
    ],
)  # fmt: skip
def test_t07_after_a_year_is_from_its_end_until_now(text: str, start: str) -> None:
    (span,) = resolve(text, SAID, "Asia/Shanghai")
    assert span.start == span.about
    assert span.start.date() == date.fromisoformat(start)
    assert span.end == SAID


def test_t07_after_a_year_to_come_lies_ahead() -> None:
    (span,) = resolve("2030年以后再说", SAID, "Asia/Shanghai")
    assert (span.start.year, span.end.year) == (2031, 2032)


def test_t05_last_week_is_about_seven_days_before() -> None:
    (span,) = resolve("I went to Paris last week", SAID)
    assert span.about.date() == date(2023, 5, 17)


def test_t06_a_clock_time_in_the_users_zone() -> None:
    (span,) = resolve("今天中午12:45开会", SAID, "Asia/Shanghai")
    assert span.start.isoformat() == "2023-05-24T12:45:00+08:00"
    (span,) = resolve("call at 5:30pm", SAID, "Europe/Berlin")
    assert span.start.isoformat() == "2023-05-24T17:30:00+02:00"
    (span,) = resolve("我们at 5:30pm见", SAID, "Europe/Berlin")
    assert span.start.isoformat() == "2023-05-24T17:30:00+02:00"
    (span,) = resolve("昨晚9点半", SAID, "Asia/Shanghai")
    assert span.start.isoformat() == "2023-05-23T21:30:00+08:00"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("今天晚上12点开始", "2023-05-25T00:00"), ("今晚12点半", "2023-05-25T00:30"),
        ("今天凌晨12点", "2023-05-24T00:00"), ("凌晨12点半", "2023-05-24T00:30"),
        ("明天凌晨3点", "2023-05-25T03:00"), ("昨天夜里2点", "2023-05-24T02:00"),
        ("昨晚十一点", "2023-05-23T23:00"), ("半夜12点", "2023-05-25T00:00"),
        ("今天中午12点", "2023-05-24T12:00"), ("今天中午1点", "2023-05-24T13:00"),
        ("下午12点半", "2023-05-24T12:30"), ("今天24点", "2023-05-25T00:00"),
        ("周五晚上8点", "2023-05-19T20:00"), ("周五晚上12点要出发", "2023-05-27T00:00"),
    ],
)  # fmt: skip
def test_t06_midnight_is_where_people_put_it(text: str, start: str) -> None:
    (span,) = resolve(text, SAID, "Asia/Shanghai")
    assert span.start.isoformat() == f"{start}:00+08:00"
    assert span.clock_known


def test_t06_a_part_of_the_night() -> None:
    (span,) = resolve("昨夜没睡", SAID, "Asia/Shanghai")
    assert span.start.isoformat() == "2023-05-23T18:00:00+08:00"


def test_unknown_zones_are_none() -> None:
    assert zone_of("Mars/Phobos") is None
    assert zone_of("../../etc/passwd") is None
    assert zone_of("") is not None
