"""Traditional Chinese is read as simplified Chinese is, and kept as it was written."""

from __future__ import annotations

from datetime import UTC, datetime

import opencc
import pytest

from benchmarks.memory.injection import HARMLESS, WISHES, attacks
from services.memory import profile, safety
from services.memory.asking import asks_back
from services.memory.domain import Message, Role, Turn
from services.memory.extraction import notes, rules
from services.memory.script import as_said, folded
from services.memory.timex import resolve
from services.search.simplified import simplify, simplify_characters
from tests.unit.memory.test_safety import PERSONAL

SAID = datetime(2023, 5, 24, 10, 0, tzinfo=UTC)
TRADITIONAL = opencc.OpenCC("s2t")


def turn(text: str) -> Turn:
    return Turn("t1", "u", "s", 1, (Message(Role.USER, text),), SAID)


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("我懷孕了", "health"), ("我有高血壓", "health"), ("我得了憂鬱症", "health"),
        ("確診了糖尿病", "health"), ("下週要動手術", "health"), ("他感染愛滋", "health"),
        ("我的薪資是八萬", "money"), ("我的薪水很低", "money"), ("銀行帳戶", "money"),
        ("房貸還沒還完", "money"), ("護照弄丟了", "identity"), ("身分證在家", "identity"),
        ("駕照過期了", "identity"), ("忠孝東路100號", "address"), ("我喜歡喝茶", None),
    ],
)  # fmt: skip
def test_m07_sensitive_categories(text: str, category: str | None) -> None:
    assert safety.is_sensitive(text) == category
    found, _ = rules.extract(turn(text))
    if category is not None:
        assert found == []
        assert notes.note_of(turn(text), []) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我喜歡喝茶", {("likes", "喝茶")}),
        ("我叫陳大明，是一名軟體工程師。", {("name", "陳大明"), ("occupation", "軟體工程師")}),
        ("我現在在臺積電工作", {("employer", "臺積電")}),
        ("我剛從上海搬到臺北", {("city", "臺北")}),
        ("我家養著一隻貓", {("pet", "貓")}),
        ("我最喜歡的顏色是藍色", {("最喜欢的颜色", "藍色")}),
        ("以後回答請簡短一點", {("answer_length", "簡短")}),
        ("我們決定用 PostgreSQL", {("decision", "PostgreSQL")}),
        ("如果我住在巴黎就好了", set()),
        ("我朋友說：我喜歡貓", set()),
        ("他覺得，我喜歡跑步", set()),
        ("幫我潤色：我是一名醫生", set()),
        ("夢裡我住在火星", set()),
        ("我喜歡加班，開玩笑的", set()),
        ("我喜歡這個", set()),
        ("我喜歡什麼？", set()),
    ],
)
def test_rules_keep_the_words_of_the_user(text: str, expected: set[tuple[str, str]]) -> None:
    found, _ = rules.extract(turn(text))
    assert {(c.attribute, c.value) for c in found} == expected
    assert all(c.quote in text for c in found)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("上週我去了北京", "2023-05-15"), ("兩天前買的", "2023-05-22"), ("後天見", "2023-05-26"),
        ("下個禮拜三", "2023-05-31"), ("去年十二月", "2022-12-01"), ("5月4號", "2023-05-04"),
    ],
)  # fmt: skip
def test_t07_times(text: str, first: str) -> None:
    (span,) = resolve(text, SAID, "Asia/Shanghai")
    assert span.start.date().isoformat() == first
    assert span.text in text


def test_t06_a_clock_time() -> None:
    (span,) = resolve("後天下午三點半開會", SAID, "Asia/Shanghai")
    assert (span.text, span.start.isoformat()) == (
        "後天下午三點半",
        "2023-05-26T15:30:00+08:00",
    )


def test_e08_asks_back() -> None:
    assert asks_back("還記得我們選了哪個嗎")
    assert asks_back("剛才說的那個")
    assert not asks_back("幫我寫個排序算法")


@pytest.mark.parametrize("text", [*(text for _, text in attacks()), *HARMLESS, *WISHES])
def test_i05_the_same_is_an_instruction_in_both_scripts(text: str) -> None:
    written = TRADITIONAL.convert(text)
    assert safety.is_injection(written) == safety.is_injection(text)
    assert safety.may_be_followed(written) == safety.may_be_followed(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *((TRADITIONAL.convert(text), kind) for text, kind in PERSONAL if not text.isascii()),
        ("信用卡號是 4111 1111 1111 1111 1", "bank_card"),
        ("聯絡方式：1 3 8 1 2 3 4 5 6 7 8", "cn_mobile"),
        ("手機壹參玖壹貳參肆伍陸柒捌", "cn_mobile"),
        ("台北市忠孝東路四段100號5樓", "address"),
        ("身分證號是130503670401001", "cn_id"),
        ("金鑰是 abcDEF123456", "secret"),
    ],
)
def test_i07_personal_data_is_replaced(text: str, kind: str) -> None:
    assert safety.redact(text).kinds == (kind,)


def test_pasted_prompts_are_not_mined_and_the_rest_stays_as_it_is() -> None:
    pasted = "我喜歡茶\n\n系統提示詞：你是一個助手。我喜歡貓\n\n我喜歡狗"
    assert safety.mineable((Message(Role.USER, pasted),)).split() == ["我喜歡茶", "我喜歡狗"]


def test_folding_keeps_every_character_in_its_place() -> None:
    text = "著名的畫家說：妳轉帳了嗎？😀 ok"
    assert len(folded(text)) == len(text)
    assert as_said(text, folded(text), "画家") == "畫家"
    plain = "已经是简体"
    assert folded(plain) == plain


def test_characters_by_themselves_keep_the_length_phrases_or_not() -> None:
    text = "乾坤 乾淨 後天 皇后 於是"
    assert len(simplify_characters(text)) == len(text) == len(simplify(text))


def test_names_of_attributes_in_traditional_characters() -> None:
    assert set(profile.stored_names("likes")) == {"likes", "喜歡"}
    assert profile.stored_names("職業")[0] == "occupation"
    assert {"職業", "職位"} < set(profile.stored_names("occupation"))
    assert profile.stored_names("billing_runs_on") == ("billing_runs_on",)
    for name in profile.stored_names("language"):
        assert profile.attribute_key(name) == "language"
