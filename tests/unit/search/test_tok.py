"""Kinds of text that the tokenizer has to bring together."""

from __future__ import annotations

import time

import opencc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.common.unicode import bounded_marks
from services.search import phrase
from services.search.language import is_chinese, is_short_query, query_length
from services.search.simplified import simplify
from services.search.tok import MAX_TERM_CHARACTERS, query_terms, tokenize


def meet(left: str, right: str) -> set[str]:
    return set(tokenize(left)) & set(tokenize(right))


@pytest.mark.parametrize(
    ("left", "right", "term"),
    [
        ("ＤＤＲ５ 内存", "ddr5", "ddr5"),
        ("ＲＴＸ４０９０", "RTX 4090", "rtx4090"),
        ("零\u200b宽空格", "零宽", "零宽"),
        ("R6900 G5", "r6900-g5", "r6900g5"),
        ("R6900G5", "R6900 G5", "r6900g5"),
        ("CVE-2024-1234", "2024-1234", "20241234"),
        ("311992D3", "311992d3", "311992d3"),
        ("NOR.0707-60", "nor 0707-60", "070760"),
        ("OvertimeService", "overtime service", "overtim"),
        ("誰認為希臘語", "希腊语", "希腊"),
        ("5月4号", "[2023-05-04] 用户", "@05-04"),
        ("8 May, 2023", "May 8th", "@05-08"),
        ("running quickly", "run", "run"),
        ("Caroline's café", "caroline cafe", "cafe"),
    ],
)
def test_writings_of_one_thing_meet(left: str, right: str, term: str) -> None:
    assert term in meet(left, right)


def test_bigrams_never_cross_a_separator() -> None:
    assert "花名" not in tokenize("花，名")


def test_a_lone_han_character_is_itself() -> None:
    assert tokenize("猫") == ["猫"]


def test_stop_words_are_left_out() -> None:
    assert tokenize("the of 的 and 了") == []


@pytest.mark.parametrize("text", ["", "   ", "!!!", "<->", "C++ & (foo|bar):*", "a' OR 1=1 --"])
def test_punctuation_is_no_error(text: str) -> None:
    assert all(tokenize(text))


@given(st.text(max_size=200))
def test_any_text_gives_bounded_terms_twice_the_same(text: str) -> None:
    terms = tokenize(text)
    assert terms == tokenize(text)
    assert all(0 < len(t) <= MAX_TERM_CHARACTERS for t in terms)


def test_query_terms_are_distinct_and_bounded() -> None:
    assert query_terms("内存 内存 内存") == ["内存"]
    assert len(query_terms(" ".join(f"w{i}x" for i in range(5_000)), limit=100)) == 100


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("花名", True),
        ("R6900 内存", True),
        ("R6900 服务器 支持多少内存", False),
        ("what model", True),
        ("what is the name of that scheme", False),
        ("帮我查一下外币汇率换算的规则", False),
    ],
)
def test_short_queries_count_characters_or_words(text: str, short: bool) -> None:
    assert is_short_query(text) is short


def test_lengths_by_script() -> None:
    assert query_length("R6900 服务器") == (3, 1)
    assert is_chinese("R6900 服务器")
    assert not is_chinese("server 器 of some kind")


@pytest.mark.parametrize("text", ["a\ud800b", "\udfff", "服务器\ud83d 内存"])
def test_half_a_character_is_no_error(text: str) -> None:
    assert "\ud800" not in "".join(tokenize(text))
    assert phrase.searchable(text) == phrase.searchable(text.encode("utf-8", "replace").decode())


@pytest.mark.parametrize("marks", ["\u0301\u0323", "\u0f71\u0f72", "\u0301"])
def test_piled_marks_are_bounded(marks: str) -> None:
    begun = time.process_time()
    tokenize("e" + marks * 200_000 + " 服务器")
    assert time.process_time() - begun < 3
    assert bounded_marks("e\u0301\u0323") == "e\u0301\u0323"
    assert len(bounded_marks("e" + "\u0301" * 100)) == 31


@given(st.integers(0, 40), st.integers(28, 34), st.integers(0, 40))
def test_a_pile_of_marks_is_found_wherever_it_stands(before: int, marks: int, after: int) -> None:
    text = "e" * before + "中" + "\u0301" * marks + "e" * after
    assert bounded_marks(text) == "e" * before + "中" + "\u0301" * min(marks, 30) + "e" * after


OPENCC = opencc.OpenCC("t2s")
FOLDED = [key for entries in OPENCC.dict_cache.values() for key in entries[2]]


@given(
    st.lists(st.sampled_from(FOLDED) | st.sampled_from([*"一是目默然，。 a乾隆後𠀀"]), max_size=30)
)
def test_folding_equals_opencc(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert simplify(text) == OPENCC.convert(text)


def test_folding_of_every_entry_equals_opencc() -> None:
    assert len(FOLDED) > 4_000
    assert [simplify(k) for k in FOLDED] == [OPENCC.convert(k) for k in FOLDED]


def test_a_long_traditional_text_is_folded_in_linear_time() -> None:
    begun = time.process_time()
    assert simplify("後來乾坤沈默" * 50_000) == "后来乾坤沉默" * 50_000
    assert time.process_time() - begun < 3
