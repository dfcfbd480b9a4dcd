"""The code that our pages show, to be compiled and run."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language, in order; AssertionError where there is none."""
    found = [code for name, code in _BLOCK.findall(page.read_text()) if name == language]
    assert found, f"{page} has no block of {language}"
    return found
