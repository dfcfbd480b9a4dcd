"""Keys under which two values, or two notes, say the same.

Letters and digits in one case and form; what stands between them does not count, except where it
makes another number: 1.5 is not 15, -5 is not 5, "3, 5" is not 35, 5% is not 5.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Final

MAX_KEY: Final = 64
_DASHES: Final = {ord(dash): "-" for dash in "‐‑‒–—―−~"}
_THOUSANDS: Final = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_DATE: Final = re.compile(r"(?<!\d)((?:19|20)\d\d)[-/.](\d{1,2})[-/.](\d{1,2})(?![\d./-])")
_COUNTS: Final = r"[^\W_]|[+#%‰$¢£¤¥\u20a0-\u20cf]"
_SIGNS: Final = re.compile(_COUNTS)
_KEPT: Final = re.compile(rf"(?<!\w)[-.](?=\.?\d)|(?<=\d)(?P<gap>[\W_]+)(?=\d)|{_COUNTS}")


def value_key(value: str) -> str:
    """Key under which two values are the same; a SHA-256 in hex where it would be longer than
    `MAX_KEY` characters. Without its signs it is the `plain_key`."""
    folded = unicodedata.normalize("NFKC", value).casefold()
    text = _THOUSANDS.sub(lambda m: m.group().replace(",", ""), folded.translate(_DASHES))
    text = _DATE.sub(r"\1-\2-\3", text)
    kept = "".join(_sign(m["gap"]) if m["gap"] else m.group() for m in _KEPT.finditer(text))
    return _bounded(kept or folded.strip())


def note_key(note: str) -> str:
    """Key of a note's text. The mark keeps it apart from keys that were stored without signs, which
    another text may have now."""
    return _bounded("=" + value_key(note))


def plain_key(content: str) -> str:
    """Letters and digits of `content` alone: the key of ids, and of the values that were stored
    before numbers kept their signs."""
    folded = unicodedata.normalize("NFKC", content).casefold()
    return _bounded("".join(c for c in folded if c.isalnum() or c in "+#") or folded.strip())


def _sign(gap: str) -> str:
    """What keeps two numbers apart: one sign for all that lies between them."""
    return "".join(_SIGNS.findall(gap)) or gap.strip()[:1] or " "


def _bounded(key: str) -> str:
    return key if len(key) <= MAX_KEY else hashlib.sha256(key.encode()).hexdigest()
