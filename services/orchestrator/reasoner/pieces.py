"""Cleaning of streamed text: halves of characters joined, inline thinking told apart from the
answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_REPLACEMENT = "\ufffd"


@dataclass
class SurrogateJoiner:
    """Joins a character whose two UTF-16 halves came in two pieces; a half alone becomes U+FFFD."""

    _held: str = ""

    def feed(self, piece: str) -> str:
        """The clean part of what has come so far."""
        text = self._held + piece
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held = text[-1]
            text = text[:-1]
        return clean(text)

    def flush(self) -> str:
        """What was held back, at the end."""
        held, self._held = self._held, ""
        return _REPLACEMENT if held else ""


def clean(text: str) -> str:
    """`text` with surrogate pairs joined, lone halves replaced and NUL removed."""
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\x00", "")


@dataclass
class ThinkSplitter:
    """Tells `<think>...</think>` at the start of an answer apart from the answer itself.

    Some servers leave a reasoning model's thinking inline. Only a block that opens the answer
    counts, so that an answer may talk about the tag.
    """

    _state: str = "start"
    _buffer: str = field(default="")

    def feed(self, piece: str) -> tuple[str, str]:
        """(thinking, text) that can be told apart so far."""
        if self._state == "text":
            return "", piece
        if self._state == "gap":
            text = piece.lstrip()
            self._state = "text" if text else "gap"
            return "", text
        self._buffer += piece
        if self._state == "start":
            head = self._buffer.lstrip()
            if head.startswith("<think>"):
                self._state, self._buffer = "think", head[len("<think>") :]
            elif "<think>".startswith(head):
                return "", ""
            else:
                self._state, text, self._buffer = "text", self._buffer, ""
                return "", text
        return self._thinking()

    def _thinking(self) -> tuple[str, str]:
        thought, tag, rest = self._buffer.partition("</think>")
        if tag:
            text = rest.lstrip()
            self._state, self._buffer = ("text" if text else "gap"), ""
            return thought, text
        # The last characters may be the beginning of the closing tag.
        keep = next(
            (n for n in range(min(7, len(thought)), 0, -1) if "</think>".startswith(thought[-n:])),
            0,
        )
        self._buffer = thought[len(thought) - keep :]
        return thought[: len(thought) - keep], ""

    def flush(self) -> tuple[str, str]:
        """What was held back, at the end."""
        held, self._buffer = self._buffer, ""
        return (held, "") if self._state == "think" else ("", held)
