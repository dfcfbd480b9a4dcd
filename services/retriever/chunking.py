"""Blocks into chunks of about 200 tokens: the passages that are matched and returned.

Small enough that a vector means one thing, cut at paragraphs, then sentences (Chinese and English),
then clauses; tables by whole rows, code blocks whole up to 6,000 characters. What is embedded and
indexed begins with `title > section`, because a passage seldom repeats the words of its heading.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from services.retriever.reading.blocks import Block, Kind
from services.retriever.reading.graphemes import safe_cut
from services.retriever.reading.sentences import estimate_tokens, sentences, split_long

TARGET_TOKENS: Final = 200
MAX_TOKENS: Final = 300
MIN_TOKENS: Final = 40
_MAX_CODE_CHARS: Final = 6_000
_MAX_PREFIX_CHARS: Final = 200
_MAX_SECTIONS: Final = 6
_MAX_SECTION_CHARS: Final = 300

_ABSTRACT: Final = re.compile(
    r"^(?:abstract|summary|tl;?dr|executive summary|摘\s*要|概\s*要|内容提要|概述)$", re.IGNORECASE
)
_NOTE: Final = re.compile(
    r"^(?:references|bibliography|footnotes?|notes|acknowledge?ments?|参考文献|脚注|注释|致谢|附注)$",
    re.IGNORECASE,
)
_TEASER: Final = re.compile(
    r"^(?:read more|learn more|see also|click here|continue reading|related:|阅读更多|查看更多"
    r"|点击(?:这里|此处|查看)|延伸阅读|相关阅读)",
    re.IGNORECASE,
)
_HEADING_NUMBER: Final = re.compile(r"^[\d.、\s]+|^[一二三四五六七八九十]+、")


@dataclass(frozen=True)
class Chunk:
    """One passage. `start`/`end`: characters in the document's text. `header`: a table header that
    stands in `text` but not at `start`. `tokens` is an estimate."""

    kind: Kind
    text: str
    section: tuple[str, ...]
    start: int
    end: int
    page: int = 0
    header: str = ""
    tokens: int = 0

    def indexed_text(self, title: str) -> str:
        """What is embedded and indexed: `title > section`, then the passage."""
        return f"{prefix(title, self.section)}{self.text}"


def prefix(title: str, section: Sequence[str]) -> str:
    """`title > section > subsection` and a line break; "" where there is neither."""
    parts = [title, *section] if title else list(section)
    seen = [p for i, p in enumerate(parts) if p and (i == 0 or p != parts[i - 1])]
    if not seen:
        return ""
    return " > ".join(seen)[:_MAX_PREFIX_CHARS] + "\n"


def content_hash(text: str) -> bytes:
    """16 bytes that name a text; equal texts have equal hashes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def chunk(text: str, blocks: Iterable[Block]) -> list[Chunk]:
    """Chunks of a document in reading order. `text`: what the blocks' offsets point into."""
    out: list[Chunk] = []
    run: list[Block] = []
    waiting: Block | None = None  # a heading that nothing has followed yet
    for block in (replace(b, section=_shortened(b.section)) for b in blocks):
        if block.kind is Kind.TITLE:
            out.extend(_pack(text, run))
            run = []
            if waiting is not None and not _leads_to(waiting, block):
                out.extend(_whole(text, waiting))
            waiting = block
            continue
        waiting = None
        if block.whole:
            out.extend(_pack(text, run))
            run = []
            out.extend(_whole(text, block))
        else:
            if run and (run[-1].section, run[-1].page) != (block.section, block.page):
                out.extend(_pack(text, run))
                run = []
            run.append(block)
    out.extend(_pack(text, run))
    if waiting is not None:
        out.extend(_whole(text, waiting))
    return [replace(c, tokens=estimate_tokens(c.text)) for c in out if c.text.strip()]


def _shortened(section: Sequence[str]) -> tuple[str, ...]:
    """A section path as every chunk under it repeats it."""
    return tuple(title[:_MAX_SECTION_CHARS] for title in section[:_MAX_SECTIONS])


def _leads_to(heading: Block, following: Block) -> bool:
    """A heading followed by its own subheading is in that one's path: no chunk of its own."""
    above = heading.section
    return following.section[: len(above)] == above and len(following.section) > len(above)


def _single(block: Block) -> Chunk:
    section = block.section[:-1] if block.kind is Kind.TITLE else block.section
    return Chunk(
        block.kind, block.text, section, block.start, block.end, block.page, header=block.header
    )


def _whole(text: str, block: Block) -> Iterator[Chunk]:
    """The block as one chunk. One of a size that is no passage any more (a listing, a table row or
    heading without end) is cut at line ends, words or cells, else anywhere; a table's header stays
    with each."""
    if len(block.text) <= _MAX_CODE_CHARS:
        yield _single(block)
        return
    repeated = "" if text[block.start : block.end] == block.text else block.header
    start = block.start
    while start < block.end:
        end = min(block.end, start + _MAX_CODE_CHARS)
        if end < block.end:
            gap = next((g for c in "\n |" if (g := text.rfind(c, start, end) + 1) > start), 0)
            end = gap if gap > start else max(start + 1, safe_cut(text, end))
        body = text[start:end]
        shown = f"{repeated}\n{body}" if repeated else body
        yield replace(_single(block), text=shown, start=start, end=end)
        start = end


@dataclass(frozen=True)
class _Span:
    start: int
    end: int
    tokens: int
    kind: Kind


def _pack(text: str, blocks: Sequence[Block]) -> Iterator[Chunk]:
    """Neighbouring blocks of one section packed up to the target; long ones split first."""
    if not blocks:
        return
    if text[blocks[0].start : blocks[0].end] != blocks[0].text:
        raise ValueError("a block's text is not what its offsets say")
    spans = [span for block in blocks for span in _spans(text, block)]
    groups: list[list[_Span]] = []
    size = 0
    for span in spans:
        if groups and size + span.tokens <= TARGET_TOKENS:
            groups[-1].append(span)
            size += span.tokens
        else:
            groups.append([span])
            size = span.tokens
    if len(groups) > 1:
        tail = sum(s.tokens for s in groups[-1])
        before = sum(s.tokens for s in groups[-2])
        if tail < MIN_TOKENS and before + tail <= MAX_TOKENS:
            groups[-2].extend(groups.pop())
    for group in groups:
        start, end = group[0].start, group[-1].end
        body = text[start:end]
        trimmed = body.strip()
        start += len(body) - len(body.lstrip())
        yield Chunk(
            _kind(group, trimmed, blocks[0].section),
            trimmed,
            blocks[0].section,
            start,
            start + len(trimmed),
            blocks[0].page,
        )


def _spans(text: str, block: Block) -> Iterator[_Span]:
    tokens = estimate_tokens(block.text)
    if tokens <= TARGET_TOKENS:
        yield _Span(block.start, block.end, tokens, block.kind)
        return
    for begin, end in sentences(block.text):
        sentence = block.text[begin:end]
        size = estimate_tokens(sentence)
        if size <= MAX_TOKENS:
            yield _Span(block.start + begin, block.start + end, size, block.kind)
            continue
        for left, right in split_long(sentence, TARGET_TOKENS):
            yield _Span(
                block.start + begin + left,
                block.start + begin + right,
                estimate_tokens(sentence[left:right]),
                block.kind,
            )


def _kind(group: Sequence[_Span], text: str, section: Sequence[str]) -> Kind:
    heading = _HEADING_NUMBER.sub("", section[-1]).strip() if section else ""
    if _ABSTRACT.match(heading):
        return Kind.ABSTRACT
    if _NOTE.match(heading):
        return Kind.NOTE
    if all(s.kind is Kind.LIST for s in group):
        return Kind.LIST
    if _TEASER.match(text) and sum(s.tokens for s in group) < MIN_TOKENS:
        return Kind.TEASER
    return Kind.PARAGRAPH
