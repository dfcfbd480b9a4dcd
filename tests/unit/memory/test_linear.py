"""Time grows with the text and not with its square, whatever the text repeats."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from services.memory import safety, timex
from services.memory.domain import Message, Role, Turn
from services.memory.extraction import notes, rules
from services.memory.extraction.text import clip, sentences
from services.memory.safety.mineable import holds_memory_block, own_words, squeeze

SAID = datetime(2024, 5, 1, tzinfo=UTC)
LENGTH = 32_000
REPEATED = [
    "a", "1", ",", "(", "，", "\n", " \n", "<memory ", "```", "`", "⟦", "[[mem:", "http://", "a@b.",
    "市", "路1", "把", "以后", "忽略", "i ", "我", "ignore ", "system: a\n",
    "sk-a-", "是sk-1", "-eyJaaaaaaaa", "ignor我", "diagnos我", "password是", "token是a", "是a://b:",
    "12 Baker ", "a@", "我@", "a.b我", "@a.", "@我.", "後", "這個月前", "周五", "周末 ", "2020年",
    "现在", "a1", "a1我",
    "ﷺ", "A ", "“我", '"i ', "写", "请", "now ",
]  # fmt: skip


def turn(text: str) -> Turn:
    return Turn("t1", "u", "s", 1, (Message(Role.USER, text),), SAID)


STEPS: dict[str, Callable[[str], object]] = {
    "redact": safety.redact,
    "injection": safety.is_injection,
    "sensitive": safety.is_sensitive,
    "own_words": own_words,
    "memory_block": holds_memory_block,
    "squeeze": squeeze,
    "sentences": sentences,
    "clip": lambda text: clip(text, 100),
    "timex": lambda text: timex.resolve(text, SAID),
    "rules": lambda text: rules.extract(turn(text)),
    "notes": lambda text: notes.note_of(turn(text), []),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("unit", REPEATED)
def test_long_repetitions_take_linear_time(unit: str, step: str) -> None:
    text = (unit * (LENGTH // len(unit) + 1))[:LENGTH]
    started = time.process_time()
    STEPS[step](text)
    # Linear steps need at most half a second, quadratic ones needed from three up to hours.
    assert time.process_time() - started < 2.5
