"""Which encoding bytes are in, and whether they are text at all."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Final

from services.retriever.reading.blocks import ReadError, Unreadable

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# In the order in which they are tried after UTF-8; each must decode without an error.
_LEGACY: Final = ("gb18030", "big5", "shift_jis", "euc_kr", "euc_jp")
_KANA: Final = re.compile("[\u3040-\u30ff]")
_HANGUL: Final = re.compile("[\uac00-\ud7a3]")
_LEAST_SCRIPT: Final = 6
# One broken byte among so many characters is damage, not another encoding.
_SOUND: Final = 50
_SAMPLE: Final = 65_536
_MAX_CONTROL_SHARE: Final = 0.02


def looks_binary(data: bytes) -> bool:
    """True for bytes that no text encoding without a BOM would hold: NULs or many controls."""
    sample = data[:_SAMPLE]
    if any(data.startswith(bom) for bom, _ in _BOMS):
        return False
    if b"\0" in sample:
        return True
    controls = sum(1 for byte in sample if byte < 32 and byte not in (9, 10, 11, 12, 13, 27))
    return controls > _MAX_CONTROL_SHARE * max(len(sample), 1)


def decode(data: bytes) -> tuple[str, str]:
    """Text and the name of its encoding.

    BOM first, then UTF-8 (a few broken bytes included), then the East Asian encoding whose result
    looks most like running text, then Windows-1252. Raises ReadError for binary data.
    """
    for bom, name in _BOMS:
        if data.startswith(bom):
            try:
                return data.decode(name), name
            except UnicodeDecodeError as error:
                raise ReadError(Unreadable.ENCODING, f"not valid {name}") from error
    if looks_binary(data):
        raise ReadError(Unreadable.BINARY, "the content is binary, not text")
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError as error:
        # A text cut in the middle of a character at its end is still UTF-8.
        if error.start >= len(data) - 3 and len(data) > 16:
            return data[: error.start].decode("utf-8"), "utf-8"
    mended = data.decode("utf-8", errors="replace")
    if _damage(mended) * _SOUND <= len(_foreign(mended)):
        return mended, "utf-8"
    read = {name: text for name in _LEGACY if (text := _try(data, name))}
    likely = _likely(read)
    if likely is not None:
        return read[likely], likely
    text = data.decode("cp1252", errors="replace")
    if text.count("\ufffd") > len(text) * 0.01:
        raise ReadError(Unreadable.ENCODING, "the text encoding could not be recognised")
    return text, "cp1252"


def _likely(read: Mapping[str, str]) -> str | None:
    """The East Asian encoding whose result looks most like running text; None if none does."""
    korean = read.get("euc_kr", "")[:_SAMPLE]
    hangul = len(_HANGUL.findall(korean))
    if hangul >= _LEAST_SCRIPT and hangul >= 0.95 * sum(c.isalpha() for c in _foreign(korean)):
        return "euc_kr"  # as Chinese, the same bytes are common characters in no order
    best = max(((_plausibility(text), name) for name, text in read.items()), default=(0.0, ""))
    if best[0] <= 0.5:
        return None
    if best[1] == "gb18030" and "euc_jp" in read:
        # Kana have the same bytes in both, and no place in Chinese.
        kana = len(_KANA.findall(read["gb18030"][:_SAMPLE]))
        if kana > 0.1 * len(_foreign(read["gb18030"][:_SAMPLE])):
            return "euc_jp"
    return best[1]


def _damage(text: str) -> int:
    return text.count("\ufffd")


def _foreign(text: str) -> str:
    return "".join(c for c in text if ord(c) > 127 and c != "\ufffd")


def _try(data: bytes, name: str) -> str | None:
    """The text in this encoding, allowing for a cut end and rare damage; None otherwise."""
    text = data.decode(name, errors="replace")
    damaged = _damage(text.rstrip("\ufffd"))
    return text.rstrip("\ufffd") if damaged * _SOUND <= len(_foreign(text)) else None


def _plausibility(text: str) -> float:
    """Share of non-ASCII characters that running CJK text would use.

    Common Han characters lie mostly in GB2312's level 1 (what a wrong guess yields does not).
    """
    foreign = [c for c in text[:_SAMPLE] if ord(c) > 127]
    if not foreign:
        return 0.0
    return sum(_weight(c) for c in foreign) / len(foreign)


def _weight(character: str) -> float:
    code = ord(character)
    if 0x3000 <= code <= 0x303F or 0xFF00 <= code <= 0xFF65 or 0x2010 <= code <= 0x2026:
        return 1.0
    if 0x3040 <= code <= 0x30FF or 0xAC00 <= code <= 0xD7A3:
        return 0.9
    if not 0x4E00 <= code <= 0x9FFF:
        return 0.0
    try:
        first = character.encode("gb2312")[0]
    except UnicodeEncodeError:
        return 0.55  # traditional forms
    return 1.0 if first < 0xD8 else 0.3
