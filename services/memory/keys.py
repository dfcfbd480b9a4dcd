"""Keys under which two values, or two notes, say the same.

Letters and digits in one case and form; what stands between them does not count, except where it
makes another number: 1.5 is not 15, -5 is not 5, "3, 5" is not 35, 5% is not 5.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Final

from services.memory.script import folded

MAX_KEY: Final = 64
_DASHES: Final = {ord(dash): "-" for dash in "‐‑‒–—―−~"}
_THOUSANDS: Final = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_DATE: Final = re.compile(r"(?<!\d)((?:19|20)\d\d)[-/.](\d{1,2})[-/.](\d{1,2})(?![\d./-])")
_COUNTS: Final = r"[^\W_]|[+#%‰$¢£¤¥\u20a0-\u20cf]"
_IDLE: Final = re.compile(
    r"(?a:\b)(?:an?|the)(?a:\b)|[吧呢啊呀哦嘛啦哈]+(?=$|[，。！？；,.!?;）)])", re.IGNORECASE
)
_SIGNS: Final = re.compile(_COUNTS)
_KEPT: Final = re.compile(rf"(?<!\w)[-.](?=\.?\d)|(?<=\d)(?P<gap>[\W_]+)(?=\d)|{_COUNTS}")


def value_key(value: str) -> str:
    """Key under which two values are the same; a SHA-256 in hex where it would be longer than
    `MAX_KEY` characters. Without its signs it is the `plain_key`."""
    plain = unicodedata.normalize("NFKC", value).casefold()
    text = _THOUSANDS.sub(lambda m: m.group().replace(",", ""), plain.translate(_DASHES))
    text = _DATE.sub(r"\1-\2-\3", text)
    kept = "".join(_sign(m["gap"]) if m["gap"] else m.group() for m in _KEPT.finditer(text))
    return _bounded(kept or plain.strip())


def note_key(note: str) -> str:
    """Key under which two notes say the same: the same words in the same order, articles and
    particles at the end of a clause apart, in simplified or traditional characters.

    The mark keeps it apart from keys of earlier versions, which another text may have.
    """
    return "=" + value_key(_IDLE.sub("", folded(note)))


def plain_key(content: str) -> str:
    """Letters and digits of `content` alone: the key of ids, and of the values that were stored
    before numbers kept their signs."""
    plain = unicodedata.normalize("NFKC", content).casefold()
    return _bounded("".join(c for c in plain if c.isalnum() or c in "+#") or plain.strip())


def _sign(gap: str) -> str:
    """What keeps two numbers apart: one sign for all that lies between them."""
    return "".join(_SIGNS.findall(gap)) or gap.strip()[:1] or " "


def _bounded(key: str) -> str:
    return key if len(key) <= MAX_KEY else hashlib.sha256(key.encode()).hexdigest()
