"""Deadlines: one monotonic instant that is handed down instead of a chain of timeouts."""

from __future__ import annotations

import time
from dataclasses import dataclass

from services.common import context


@dataclass(frozen=True)
class Deadline:
    """An instant on the monotonic clock, in seconds."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The instant ``seconds`` from now."""
        return cls(time.monotonic() + seconds)

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - time.monotonic())

    @property
    def expired(self) -> bool:
        """True once nothing is left."""
        return time.monotonic() >= self.at

    def slice(self, max_s: float, margin_s: float = 0.0) -> Deadline:
        """A deadline for one step: at most ``max_s`` from now, and ``margin_s`` before this one."""
        return Deadline(min(self.at - margin_s, time.monotonic() + max_s))


def remaining(default_s: float) -> float:
    """Seconds left of the current call, or ``default_s`` when it has no deadline.

    A default shorter than what is left does not win; ``timeout`` is for that.
    """
    deadline = context.current_deadline()
    return default_s if deadline is None else deadline.remaining()


def timeout(max_s: float, margin_s: float = 0.0) -> float:
    """Seconds one step may take: ``max_s``, cut to what the current call has left less a margin."""
    deadline = context.current_deadline()
    return max_s if deadline is None else deadline.slice(max_s, margin_s).remaining()
