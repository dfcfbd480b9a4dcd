"""How statements meet the profile."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from services.memory import profile
from services.memory.domain import Candidate, Fact, FactKind, FactState, Origin, Source
from services.memory.keys import note_key, plain_key, value_key

DAY = timedelta(days=1)
T0 = datetime(2024, 1, 1, tzinfo=UTC)


def said(attribute: str, value: str, day: int, **more: object) -> Candidate:
    base = Candidate(
        FactKind.FACT, attribute, value, "", value, f"t{day}", "s", T0 + day * DAY, T0 + day * DAY,
        Origin.RULES, "en",
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


def told(history: list[Candidate], opposite: list[Fact] | None = None) -> list[Fact]:
    """Apply candidates of one attribute to an empty timeline, as `apply` does with rows."""
    facts: dict[str, Fact] = {}
    for number, candidate in enumerate(history):
        source = Source(candidate.turn_id, "s", candidate.quote, candidate.event_time)
        plan = profile.plan(candidate, list(facts.values()), opposite or [])
        for close in plan.closes:
            facts[close.fact_id] = replace(
                facts[close.fact_id], valid_to=close.valid_to, state=close.state
            )
        if plan.resume:
            old, at = facts[plan.resume.fact_id], plan.resume.at
            facts[f"{number}r"] = replace(
                old, fact_id=f"{number}r", valid_from=at, valid_to=plan.resume.valid_to,
                state=plan.resume.state,
                sources=tuple(s for s in old.sources if s.event_time >= at),
            )  # fmt: skip
            kept = tuple(s for s in old.sources if s.event_time < at)
            facts[old.fact_id] = replace(old, sources=kept or old.sources)
        if plan.merge_into:
            old = facts[plan.merge_into]
            start = plan.earlier_start or old.valid_from
            facts[old.fact_id] = replace(old, valid_from=start, sources=(*old.sources, source))
        if plan.insert:
            facts[str(number)] = Fact(
                str(number), "u", candidate.kind, candidate.attribute, candidate.value,
                value_key(candidate.value), "",
                profile.cardinality_of(candidate.attribute, candidate.cardinality),
                plan.insert.state, plan.insert.valid_from, plan.insert.valid_to, T0, None, None,
                candidate.origin, "en", "e", (source,),
            )  # fmt: skip
    return sorted(facts.values(), key=lambda f: f.valid_from)


def test_t04_any_order_of_arrival_gives_the_same_timeline() -> None:
    statements = [said("city", c, d) for c, d in (("A", 1), ("B", 2), ("A", 3), ("C", 4))]
    expected = [(f.value, f.valid_from, f.valid_to) for f in told(statements)]
    assert [v for v, _, _ in expected] == ["A", "B", "A", "C"]
    for order in permutations(range(4)):
        got = told([statements[i] for i in order])
        assert [(f.value, f.valid_from, f.valid_to) for f in got] == expected
        assert [f.state for f in got if f.valid_to is None] == [FactState.ACTIVE]


def test_what_is_told_of_a_time_that_is_over_does_not_hold_again_after_it() -> None:
    facts = told([
        said("city", "A", 10, valid_from=T0 + DAY), said("city", "B", 20, valid_from=T0 + 3 * DAY),
        said("city", "C", 30, valid_from=T0 + 2 * DAY),
    ])  # fmt: skip
    assert [(f.value, (f.valid_from - T0).days) for f in facts] == [
        ("A", 1), ("C", 2), ("B", 3), ("A", 10),
    ]  # fmt: skip
    assert [f.valid_to and (f.valid_to - T0).days for f in facts] == [2, 3, 10, None]
    assert all(len(f.sources) == 1 for f in facts)


def test_t03_many_valued_attributes_do_not_close_each_other() -> None:
    facts = told([said("language", "English", 1), said("language", "Chinese", 2)])
    assert all(f.state is FactState.ACTIVE for f in facts)


def test_what_ended_is_closed_and_can_come_back() -> None:
    facts = told([
        said("uses", "Disqus", 1), said("uses", "Disqus", 2, ended=True), said("uses", "Disqus", 3),
    ])  # fmt: skip
    assert [f.state for f in facts] == [FactState.SUPERSEDED, FactState.ACTIVE]


@pytest.mark.parametrize(
    ("ended", "known"),
    [
        ("Go", "go"), ("Go", "Go 1.21"), ("PostgreSQL", "PostgreSQL v16"), ("tea", "green tea"),
        ("咖啡", "喝咖啡"), ("喝咖啡", "咖啡"), ("drinking coffee", "coffee"), ("C++", "c++"),
        ("Slack at work", "Slack"), ("Obsidian 做笔记", "Obsidian"), ("Redis", "redis cache"),
        ("微信", "微信"), ("臺積電", "台积电"), ("Disqus comments", "disqus comments"),
    ],
)  # fmt: skip
def test_what_is_over_ends_the_value_it_names(ended: str, known: str) -> None:
    (old,) = told([said("uses", known, 1), said("uses", ended, 2, ended=True)])
    assert old.state is FactState.SUPERSEDED


@pytest.mark.parametrize(
    ("ended", "known"),
    [
        ("Go", "MongoDB"), ("Go", "Django"), ("Go", "Google Docs"), ("Java", "JavaScript"),
        ("微信", "企业微信"), ("企业微信", "微信"), ("C", "C++"), ("C", "C#"),
        ("Google", "Google Docs"), ("Google Docs", "Google"), ("React", "React Native"),
        ("green tea", "tea"), ("茶", "茶叶蛋"), ("us tax", "tax"),
        ("PostgreSQL 16", "PostgreSQL 18"), ("Python 2", "Python"), ("R", "Rust"), ("…", "Go"),
    ],
)  # fmt: skip
def test_what_is_over_ends_nothing_that_only_shares_its_letters(ended: str, known: str) -> None:
    (old,) = told([said("uses", known, 1), said("uses", ended, 2, ended=True)])
    assert old.state is FactState.ACTIVE


@pytest.mark.parametrize(
    ("ended", "known", "state"),
    [
        ("字节", "字节跳动", FactState.SUPERSEDED), ("阿里巴巴", "阿里", FactState.SUPERSEDED),
        ("Google", "Google Cloud", FactState.SUPERSEDED), ("Go", "Google", FactState.ACTIVE),
        ("跳动", "字节跳动", FactState.ACTIVE), ("腾讯", "字节跳动", FactState.ACTIVE),
    ],
)  # fmt: skip
def test_the_only_value_may_be_named_short(ended: str, known: str, state: FactState) -> None:
    (old,) = told([said("employer", known, 1), said("employer", ended, 2, ended=True)])
    assert old.state is state


def test_aliases_and_keys() -> None:
    assert profile.attribute_key("Job Title") == "occupation"
    assert profile.attribute_key("职业") == "occupation"
    assert profile.attribute_key("Billing Runs-On") == "billing_runs_on"
    assert value_key("ＲＴＸ 4090") == value_key("rtx4090")
    assert value_key("C++") != value_key("C#")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Go 1.2.1", "Go 1.21"), ("-5度", "5度"), ("−5°C", "5°C"), ("1.5万元", "15万元"),
        ("12:30", "1230"), ("3-5天", "35天"), ("3, 5", "35"), ("1,5", "15"), ("5%", "5"),
        ("$100", "€100"), (".5", "5"), ("iPhone 15 16", "iPhone 1516"), ("1/2", "12"),
    ],
)  # fmt: skip
def test_other_numbers_are_other_values(one: str, other: str) -> None:
    assert value_key(one) != value_key(other)
    assert note_key(one) != note_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10,000 元", "10000元"), ("1，234，567", "1234567"), ("2024-05-01", "2024/05/01"),
        ("Python-3", "python 3"), ("v.2", "V2"), ("Node.js", "nodejs"), ("12：30", "12:30"),
        ("3–5 days", "3-5 days"), ("3 ~ 5天", "3~5天"), ("E-Mail", "email"), ("他说：好", "他说好"),
    ],
)  # fmt: skip
def test_other_spellings_are_the_same_value(one: str, other: str) -> None:
    assert value_key(one) == value_key(other)


@pytest.mark.parametrize(
    "value",
    ["Go 1.21", "-5度", "10,000", "5 + 3", "5++3", "2024/5/1", "$1.5", "C++ 20.1", "3 、5", "…"],
)
def test_a_key_tells_apart_no_less_than_the_key_of_earlier_versions(value: str) -> None:
    assert plain_key(value_key(value)) == plain_key(value)


MEETING = "周会改到每周三下午两点在研发楼二层东侧会议室开，由小李主持并且负责整理会议纪要发到群里"


@pytest.mark.parametrize(
    ("said", "other"),
    [
        (MEETING, MEETING.replace("周三", "周四")), (MEETING, MEETING.replace("两点", "三点")),
        (MEETING, MEETING.replace("小李", "小王")), (MEETING, MEETING.replace("负责", "不负责")),
        (MEETING, MEETING.replace("二层", "三层")), (MEETING, MEETING.replace("会议纪要", "")),
        ("The server is up", "The server is not up"), ("The server is up", "The server is down"),
        ("Ann reports to Bob", "Bob reports to Ann"), ("I live in Oslo", "I will live in Oslo"),
    ],
)  # fmt: skip
def test_notes_that_differ_in_a_word_are_two(said: str, other: str) -> None:
    assert note_key(said) != note_key(other)


@pytest.mark.parametrize(
    ("said", "other"),
    [
        ("用户说：周会改到周四吧。", "用户说：周会改到周四"), ("用户喜歡喝茶", "用户喜欢喝茶"),
        ("The user picked the blue theme", "the user picked a blue theme."),
    ],
)  # fmt: skip
def test_notes_of_the_same_words_are_one(said: str, other: str) -> None:
    assert note_key(said) == note_key(other)


def test_no_key_of_a_note_is_one_of_an_earlier_version() -> None:
    texts = ["预算是1.5万元", "预算是15万元", "x" * 100]
    assert not {note_key(t) for t in texts} & {plain_key(t) for t in texts}


def test_a_tombstone_of_an_earlier_version_holds_and_new_ones_tell_numbers_apart() -> None:
    def stones(value: str) -> tuple[str, str]:
        return profile.value_tombstones("t", "u", "fact:uses", value)

    left_before = profile.tombstone_hash("t", "u", "fact:uses", "Go 1.21")
    assert left_before in stones("Go 1.21")
    assert stones("Go 1.21")[0] not in stones("Go 1.2.1")
    assert stones("Go 1.21")[0] not in stones("Go 121")
