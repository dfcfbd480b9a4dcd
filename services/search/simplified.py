"""Traditional characters folded to simplified ones, by the dictionaries of OpenCC (`t2s`).

The result is that of the `opencc` package, which tries every substring of a text against its
dictionaries: 1 ms a kilobyte, and more than linear in a long run of traditional text. Both sides
of every comparison go through here, so it has to cost next to nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import product
from typing import Final

_PHRASES: Final = "TSPhrases.txt"
_CHARACTERS: Final = "TSCharacters.txt"


@dataclass(frozen=True)
class _Tables:
    """`concerned` find out whether a text changes at all; `phrases` by length, longest first."""

    concerned: tuple[re.Pattern[str], ...]
    phrases: tuple[re.Pattern[str], ...]
    phrase_values: dict[str, str]
    characters: dict[int, str]


def _entries(name: str) -> dict[str, str]:
    source = resources.files("opencc") / "dictionary" / name
    lines = source.read_text("utf-8").splitlines()
    pairs = (line.strip().split("\t") for line in lines if line.strip())
    # Of several simplified forms the first one is meant.
    return {key: value.split(" ")[0] for key, value in pairs}


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    phrases, characters = _entries(_PHRASES), _entries(_CHARACTERS)
    lengths = sorted({len(p) for p in phrases}, reverse=True)
    # A phrase that no single character gives away has to be looked for as such.
    hidden = [p for p in phrases if not any(c in characters for c in p)]
    # Characters beyond the basic plane apart: a class that holds them is searched one by one.
    basic = "".join(re.escape(c) for c in characters if c <= "\uffff")
    return _Tables(
        concerned=(
            re.compile(f"[{basic}]"),
            re.compile("[\U00010000-\U0010ffff]"),
            re.compile("|".join(map(re.escape, hidden)) or r"(?!)"),
        ),
        phrases=tuple(
            re.compile("(" + "|".join(re.escape(p) for p in phrases if len(p) == n) + ")")
            for n in lengths
        ),
        phrase_values=phrases,
        characters={ord(key): value for key, value in characters.items()},
    )


def simplify(text: str) -> str:
    """The text in simplified characters: longest phrases first, from left to right, then what is
    left character by character."""
    if text.isascii():
        return text
    tables = _tables()
    if not any(pattern.search(text) for pattern in tables.concerned):
        return text
    return _fold(text, tables, 0)


def simplify_characters(text: str) -> str:
    """The text with every character simplified by itself: as long as it was."""
    return text.translate(_tables().characters)


def _fold(text: str, tables: _Tables, level: int) -> str:
    """`text`, in which no phrase of an earlier (longer) level stands."""
    while level < len(tables.phrases):
        parts = tables.phrases[level].split(text)
        level += 1
        if len(parts) > 1:
            return "".join(
                tables.phrase_values[part] if n % 2 else _fold(part, tables, level)
                for n, part in enumerate(parts)
            )
    return text.translate(tables.characters)


def spellings(text: str) -> list[str]:
    """`text` in simplified characters, and every way to write it with one or more traditional ones
    that become these by themselves. For words: their number grows with every character."""
    return ["".join(chosen) for chosen in product(*map(_forms, text))]


def _forms(character: str) -> list[str]:
    return [character, *(chr(c) for c, plain in _tables().characters.items() if plain == character)]
