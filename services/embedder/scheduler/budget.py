"""Token budget and speed of one lane, learned from its batches."""

from __future__ import annotations

_RECOVER_AFTER = 16
_RECOVER_FACTOR = 1.25
_FORGET = 0.98


class LaneBudget:
    """Padded tokens a batch may have: halved when memory runs out, grown back slowly."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._good = 0
        self.tokens = limit

    def halve(self, padded_tokens: int) -> None:
        """A batch of `padded_tokens` did not fit."""
        self.tokens = max(1, min(self.tokens, padded_tokens) // 2)
        self._good = 0

    def good(self) -> None:
        """A batch went well."""
        if self.tokens >= self._limit:
            return
        self._good += 1
        if self._good >= _RECOVER_AFTER:
            self._good = 0
            self.tokens = min(self._limit, int(self.tokens * _RECOVER_FACTOR) + 1)


class Speed:
    """Tokens a second of one lane, leaning to the optimistic side.

    Small batches use the device badly and say little about what a long queue takes, so a slower
    batch only lowers the estimate by a fiftieth of the difference: a call is refused only if it is
    hopeless.
    """

    def __init__(self) -> None:
        self.tokens_per_s = 0.0

    def record(self, tokens: int, seconds: float) -> None:
        """A batch of `tokens` took `seconds`."""
        if seconds <= 0.0:
            return
        seen = tokens / seconds
        slower = self.tokens_per_s * _FORGET + seen * (1.0 - _FORGET)
        self.tokens_per_s = max(seen, slower)

    def seconds(self, tokens: int) -> float:
        """Predicted seconds for `tokens`; 0 while nothing is known."""
        return tokens / self.tokens_per_s if self.tokens_per_s else 0.0
