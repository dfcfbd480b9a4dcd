"""The fenced blocks of the documents, and what their authors say about running them.

A shell or Python block is run unless a comment right before it says why not:

- ``<!-- doc-test: skip: REASON -->``: it cannot run where tests run
- ``<!-- doc-test: covered: tests/PATH: WHAT -->``: that test does the same
- ``<!-- doc-test: database: DSN -->``: it runs with DSN replaced by that of a new database

A block with a title (``python title="conftest.py"``) is a file for the blocks after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

SHELL = ("bash", "sh", "shell", "console")
RUN = (*SHELL, "python")
_MARKER = re.compile(r"<!--\s*doc-test:\s*(\w+)\s*:\s*(.*?)\s*-->", re.DOTALL)
_TITLE = re.compile(r'\btitle="([^"]+)"')
_REASON_CHARS = 8


class DocError(Exception):
    """A block or a marker that the tests do not understand; the text says which and why."""


@dataclass(frozen=True)
class Block:
    """One fenced block. ``kind`` is run, skip, covered, database or file."""

    document: str
    line: int
    language: str
    text: str
    kind: str
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The lines of a shell block that are commands, without comments and continuations."""
        text = self.text.replace("\\\n", " ")
        if self.language == "console":
            text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
        return [
            line.strip()
            for line in text.splitlines()
            if line.strip() and not line.strip().startswith("#")
        ]


def blocks(path: Path, name: str) -> Iterator[Block]:
    """The shell and Python blocks of one document, in order.

    Raises:
        DocError: a block without a language, or a marker that says nothing.
    """
    tokens = MarkdownIt("commonmark").parse(path.read_text(encoding="utf-8"))
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type != "fence":
            continue
        line = (token.map or [0])[0] + 1
        language, _, rest = token.info.strip().partition(" ")
        if not language:
            raise DocError(f"{name}:{line}: a block needs a language (text, if it is none)")
        if language not in RUN:
            continue
        titled = _TITLE.search(rest)
        kind, argument = ("file", titled.group(1)) if titled else ("run", "")
        if before is not None and before.type == "html_block" and "doc-test" in before.content:
            kind, argument = _marker(before.content, f"{name}:{line}")
        yield Block(name, line, language, token.content, kind, argument)


def _marker(comment: str, where: str) -> tuple[str, str]:
    found = _MARKER.search(comment)
    if found is None:
        raise DocError(f"{where}: cannot read the marker {comment.strip()}")
    kind, argument = found.group(1), found.group(2)
    if kind == "skip" and len(argument) >= _REASON_CHARS:
        return kind, argument
    if kind == "database" and "://" in argument:
        return kind, argument
    if kind == "covered":
        test, _, what = argument.partition(":")
        if len(what.strip()) >= _REASON_CHARS:
            return kind, test.strip()
    raise DocError(f"{where}: the marker must be skip, covered or database, with a reason")
