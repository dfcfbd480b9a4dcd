# ruff: noqa: E501 - one case a line
"""Whose claim a statement is: rules and checks keep what the user says of themselves, nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from services.memory.domain import Message, Role, Turn
from services.memory.extraction import check, rules, voice

SAID = datetime(2024, 5, 1, tzinfo=UTC)


def turn(text: str) -> Turn:
    return Turn("t1", "u", "s", 1, (Message(Role.USER, text),), SAID)


def facts(text: str) -> set[tuple[str, ...]]:
    found, _ = rules.extract(turn(text))
    return {(c.attribute, c.value, *(["ended"] if c.ended else [])) for c in found}


@pytest.mark.parametrize(
    "text",
    [
        # Another's word, thought or label.
        "She says I like jazz", "My mom thinks I like jazz", "I don't think I like jazz", "I'm not sure I like jazz",
        "Tom: I like jazz", "He wrote 'I'm a pilot' on the form", "My dad always says “I live in the best city”",
        "他以为我喜欢跑步", "大家都觉得我喜欢跑步", "谁说我喜欢跑步", "我没说我喜欢香菜", "小明：我在华为工作", "我同事叫李明，是设计师",
        "他觉得，我喜欢跑步",
        # Material and fiction.
        "Translate: I like cats", "Translate the following:\n\nI live in Paris. I like cats.", "Write a story that begins with: I live in Mars",
        'The phrase "I work at Google" is grammatically correct.', "In my novel I am a pilot", "In the game, I'm a doctor", "e.g. I like cats",
        "请把下面这句话翻译成英文：我住在北京", "帮我润色：我是一名医生", "“我喜欢猫”这句话怎么说", "梦里我住在火星", "写一段自我介绍：我叫李华，我是学生",
        "帮我写一篇作文，题目是《我喜欢春天》", "Translate这段：我喜欢猫", "他写了'我喜欢猫'", "用e.g. I like cats 造句", "You are a助手。我喜欢猫", "我喜欢加班just kidding啦",
        # Jokes and unreal conditions.
        "I love broccoli, just kidding", "I'm a pilot. Just kidding!", "我喜欢加班，开玩笑的", "Assume I work at Google", "Unless I work at Google",
        "就算我喜欢跑步", "当我住在北京的时候", "我希望我喜欢跑步",
        # Negations, the past, other people.
        "I'm not a doctor", "I am no lawyer", "I was a teacher for ten years", "My wife is a teacher", "我以前是老师", "我之前住在广州", "我是你老板", "我的老师是王教授",
        # What only looks like the attribute.
        "call me tomorrow", "Please call me back later", "call me crazy", "my name is not important", "My name is on the list", "我叫不出他的名字",
        "妈妈叫我回家吃饭", "别叫我老王", "I left the keys at home", "I quit smoking", "I joined the meeting late", "I work by myself", "I live in fear",
        "I moved to dark mode", "I'm from the sales team", "我在努力工作", "我住在哪里", "my computer is slow",
        # What only points.
        "I love you", "I use them", "I hate when that happens", "我喜欢这个", "我喜欢你",
        # Wishes that are not the user's.
        "He told me to be brief", "老师要求回答简短", "考试要求用英文回答",
    ],
)  # fmt: skip
def test_m07_what_is_not_the_users_own_claim_is_no_fact(text: str) -> None:
    assert facts(text) == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hi, I'm Tom and I work at Shopify as a product manager.", {("name", "Tom"), ("employer", "Shopify"), ("occupation", "product manager")}),
        ("I am a senior backend engineer at Stripe", {("occupation", "senior backend engineer"), ("employer", "Stripe")}),
        ("I am called Åsa Öberg", {("name", "Åsa Öberg")}),
        ("my name is josé garcía", {("name", "josé garcía")}),
        ("I go by Sam", {("call_me", "Sam")}),
        ("In 2021 I joined Spotify", {("employer", "Spotify")}),
        ("After college I moved to Madrid", {("city", "Madrid")}),
        ("I left Amazon in March", {("employer", "Amazon", "ended")}),
        ("I don’t like olives", {("dislikes", "olives")}),
        ("I'm not a big fan of jazz", {("dislikes", "jazz")}),
        ("My phone is a Pixel 8", {("phone", "Pixel 8")}),
        ("Don't answer in French", {("instruction", "Don't answer in French")}),
        ("大家好，我是李雷，来自成都", {("name", "李雷"), ("hometown", "成都")}),
        ("我姓陈，叫陈思远", {("name", "陈思远")}),
        ("本人是律师", {("occupation", "律师")}),
        ("我上周从百度离职了", {("employer", "百度", "ended")}),
        ("我在腾讯做后端开发", {("employer", "腾讯")}),
        ("毕业后我搬到了南京", {("city", "南京")}),
        ("我家在苏州", {("city", "苏州")}),
        ("我是北京人，现在住在上海", {("hometown", "北京"), ("city", "上海")}),
        ("我是四川人", {("hometown", "四川")}),
        ("我一点也不喜欢香菜", {("dislikes", "香菜")}),
        ("他们都叫我老王", {("call_me", "老王")}),
        ("不要用英文回答", {("instruction", "不要用英文回答")}),
        ("I like cats. Translate: I like dogs", {("likes", "cats")}),
    ],
)  # fmt: skip
def test_m07_ordinary_phrasings_are_understood(text: str, expected: set[tuple[str, ...]]) -> None:
    assert facts(text) == expected


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("She thinks I live in Rome", "I live in Rome"),
        ("I am not sure I live in Rome", "I live in Rome"),
        ("Translate: I live in Rome", "I live in Rome"),
        ('The card reads "I live in Rome" in red', "I live in Rome"),
        ("I live in Rome. Just kidding!", "I live in Rome"),
        ("他觉得我住在罗马", "我住在罗马"),
        ("翻译成英文：我住在罗马", "我住在罗马"),
    ],
)
def test_w09_a_models_fact_needs_the_users_own_claim(text: str, quote: str) -> None:
    item = {"turn": 1, "kind": "fact", "attribute": "city", "value": quote[-4:], "quote": quote}
    assert check.fact_of(item, [turn(text)], [text]) == "not_stated"


def test_w09_a_question_does_not_take_back_a_statement() -> None:
    text = "我喜欢吃辣吗？我喜欢吃辣。"
    item = {"turn": 1, "attribute": "likes", "value": "吃辣", "quote": "我喜欢吃辣"}
    assert not isinstance(check.fact_of(item, [turn(text)], [text]), str)


def test_only_quotations_in_the_first_person_are_left_out() -> None:
    assert voice.unquoted('我的花名是"小云"') == '我的花名是"小云"'
    assert voice.unquoted("he said “I like it” twice") == "he said … twice"
