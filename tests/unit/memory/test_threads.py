"""Long texts are worked on beside the event loop, short ones in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from services.memory import append, readings
from services.memory.domain import Message, Reading, Role
from services.memory.readings import Shelf
from services.memory.threads import INLINE_CHARACTERS, by_size

NOW = datetime(2024, 3, 5, tzinfo=UTC)


async def test_a_thread_is_taken_for_long_texts_only() -> None:
    here = threading.get_ident()
    assert await by_size(INLINE_CHARACTERS, threading.get_ident) == here
    assert await by_size(INLINE_CHARACTERS + 1, threading.get_ident) != here


async def test_an_error_in_the_thread_is_the_callers() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await by_size(INLINE_CHARACTERS + 1, fail)


def spied(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[bool]:
    """For every call of a function whether it ran in this thread."""
    here, calls = threading.get_ident(), []
    real: Callable[..., Any] = getattr(module, name)

    def spy(*args: Any) -> Any:
        calls.append(threading.get_ident() == here)
        return real(*args)

    monkeypatch.setattr(module, name, spy)
    return calls


@pytest.mark.parametrize(("times", "inline"), [(2, True), (1_000, False)])
async def test_a_turn_is_prepared_beside_the_loop_when_it_is_long(
    monkeypatch: pytest.MonkeyPatch, times: int, inline: bool
) -> None:
    calls = spied(monkeypatch, append, "prepare")
    said = Message(Role.USER, "call 13812345678 " * times)
    prepared, terms = await append.ready([said], NOW)
    assert calls == [inline]
    assert "pii:cn_mobile" in prepared.flags
    assert "138" not in prepared.messages[0].text
    assert "call" in terms


def reading(number: int, summary: str) -> Reading:
    return Reading(
        reading_id=f"r{number}", user_id="u", document_id=f"d{number:04}", title=f"title {number}",
        summary=summary, first_read_at=NOW, read_at=NOW, times=1, weight=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(("count", "inline"), [(3, True), (300, False)])
async def test_readings_are_compared_beside_the_loop_when_they_are_many(
    monkeypatch: pytest.MonkeyPatch, count: int, inline: bool
) -> None:
    calls = spied(monkeypatch, readings, "rank")
    shelf = Shelf([reading(n, f"about topic{n} and other things") for n in range(count)])
    hits = await readings.similar(shelf, "topic2", None, 3)
    assert calls == [inline]
    assert hits[0].reading.document_id == "d0002"


async def test_what_is_judged_by_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = readings.rank

    def spy(shelf: Shelf, texts: dict[str, str], *rest: Any) -> Any:
        seen.append(sum(map(len, texts.values())))
        return real(shelf, texts, *rest)

    monkeypatch.setattr(readings, "rank", spy)
    long = "words of many kinds " * 400
    shelf = Shelf([reading(n, long) for n in range(300)])
    hits = await readings.similar(shelf, "title 299", None, 3)
    assert seen[0] <= 200_000 + 300 * 10
    # Its title is looked at, whatever stands before it.
    assert "d0299" in {h.reading.document_id for h in hits}
