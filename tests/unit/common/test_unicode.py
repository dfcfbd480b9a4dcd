"""Patterns for text of several scripts."""

from __future__ import annotations

import pytest

from services.common.unicode import mixed


def test_an_edge_lies_between_a_letter_and_a_chinese_character() -> None:
    assert mixed(r"\bkey\b").search("我的key是") is not None
    assert mixed(r"\bkey\b").search("my monkey") is None


def test_a_word_ends_before_chinese() -> None:
    found = mixed(r"\w+[\w-]*").search("的ab-c是")
    assert found is not None
    assert found.group() == "ab-c"


def test_accents_stay_in_words_where_words_are_left_alone() -> None:
    assert mixed(r"\bmy \w+ said", words=False).search("他说my fiancé said") is not None


def test_what_has_no_ascii_form_is_refused() -> None:
    with pytest.raises(ValueError, match="ASCII"):
        mixed(r"[^\W\d]+")
