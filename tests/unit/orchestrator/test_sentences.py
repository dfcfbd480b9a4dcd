"""Where sentences end, and where a stop ends none."""

from __future__ import annotations

import pytest

from services.orchestrator import sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. 方法很好。\n2. 结果不错。", ["1. 方法很好。", "2. 结果不错。"]),
        ("1. It works. 2 is next.\n10. It fails.", ["1. It works.", "2 is next.", "10. It fails."]),
        ("- **1. First**\n  a. Second", ["- **1. First**", "a. Second"]),
        ("## 2. 结果\niv. 结论", ["## 2. 结果", "iv. 结论"]),
        ("答案是\n42.", ["答案是", "42."]),
        ("It took 42. Then it ended.", ["It took 42.", "Then it ended."]),
        ("2024. 那年下雪。", ["2024.", "那年下雪。"]),
        ("1.\n方法", ["1.", "方法"]),
        ("版本 1.2 可用。[E1] 好！", ["版本 1.2 可用。[E1]", "好！"]),
    ],
)
def test_a_label_of_a_list_is_no_sentence(text: str, expected: list[str]) -> None:
    found = sentences.split(text)
    assert [one.text for one in found] == expected
    assert [text[one.start : one.end] for one in found] == expected
