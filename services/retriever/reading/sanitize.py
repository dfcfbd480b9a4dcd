"""A document's text as it may be stored: NFC, no NUL, no lone surrogates, no control characters."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from services.common.unicode import bounded_marks

_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_CONTROL: Final = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff]")


def sanitize(text: str) -> tuple[str, tuple[str, ...]]:
    """The clean text and what was changed, in the words of the contract's Sanitization."""
    changes: list[str] = []
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        text = text.replace("\0", "")
        changes.append("nul_removed")
    if _SURROGATE.search(text):
        # A pair that was split into two escapes is one character again; a lone one goes.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        changes.append("surrogate_replaced")
    if _CONTROL.search(text):
        # A form feed separates pages: it ends a line.
        text = _CONTROL.sub("", text.replace("\x0c", "\n"))
        changes.append("control_removed")
    bounded = bounded_marks(text)
    if not unicodedata.is_normalized("NFC", bounded):
        bounded = unicodedata.normalize("NFC", bounded)
    if bounded != text:
        changes.append("nfc")
    return bounded, tuple(changes)
