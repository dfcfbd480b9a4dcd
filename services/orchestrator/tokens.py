"""The service's own token counter: an estimate that needs no model's tokenizer."""

from __future__ import annotations

import re

_WIDE = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")


def estimate(text: str) -> int:
    """Tokens of `text`: one per wide (Chinese, Japanese, Korean) character, one per four others."""
    wide = len(_WIDE.findall(text))
    return wide + (len(text) - wide + 3) // 4


def cut(text: str, tokens: int) -> str:
    """The longest prefix of `text` of at most `tokens` estimated tokens."""
    if estimate(text) <= tokens:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate(text[:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low]
