"""Work on long texts leaves the event loop free; on short ones a thread would cost more than it
saves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

INLINE_CHARACTERS: Final = 4_000
"""About a millisecond of tokenising and redacting."""


async def by_size(characters: int, work: Callable[[], T]) -> T:
    """What `work`, which looks at so many characters of text, returns. Never call it with a
    connection in hand where that can be helped."""
    if characters <= INLINE_CHARACTERS:
        return work()
    return await asyncio.to_thread(work)
