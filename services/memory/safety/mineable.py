# ruff: noqa: E501 - tables read better with one entry a line
"""Which part of a turn may be mined: what the user said of their own accord, nothing else.

Left out: messages of other roles and other speakers, memory blocks that this service rendered itself,
prompt and chat transcripts that were pasted, code, quoted lines. Offsets need not survive: a quote is
looked for in the text that is left.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from services.common.unicode import mixed
from services.memory.domain import Message, Role
from services.memory.script import folded

BLOCK_TAG: Final = "nianlun-memory"
"""Name of the element that every rendered memory block stands in."""

_OWN_BLOCK: Final = mixed(rf"<{BLOCK_TAG}\b.*?(?:</{BLOCK_TAG}>|\Z)", re.IGNORECASE | re.DOTALL)
# A rendered line quoted without its element still ends in its source.
_OWN_LINE: Final = re.compile(r"^.*(?:⟦[^⟦⟧\n]*⟧|\[\[mem:[^\[\]\n]*\]\]).*$", re.MULTILINE)
_PROMPT_BLOCK: Final = mixed(
    r"<(system|developer|instructions?|memory|memories|context|prompt)\b[^<>]{0,400}>.*?(?:</\1>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
# The orchestrator's system prompt: its sections, each under a heading of its own, and the passages.
_OWN_SECTION: Final = re.compile(
    r"^[^\S\n]*#{1,3} ?(?:任务|形式|约束|资料（供引用|读者以前读过的相近文献（|本次对话较早部分的摘要（"
    r"|Task$|Form$|Constraints$|Sources \(data|Similar documents this reader|Summary of the earlier part).*?(?=\n[^\S\n]*\n|\Z)",
    re.MULTILINE | re.DOTALL,
)
_OWN_PASSAGE: Final = re.compile(
    r"<source id=[\"“]E\d{1,4}[\"”].*?(?:</source>|\Z)", re.IGNORECASE | re.DOTALL
)
_FENCE: Final = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_QUOTED_LINE: Final = re.compile(r"^[^\S\n]*[>＞].*$", re.MULTILINE)
# A paragraph that opens with a speaker's or prompt's label is a transcript.
_LABELLED: Final = re.compile(
    r"^[^\S\n]*(?:[#*\[【]{0,3})(?:system(?: prompt| message)?|assistant|developer|tool|bot|ai"
    r"|系统(?:提示词?|消息|指令)?|助手|助理|机器人|工具)(?:[\]】*]{0,3})[^\S\n]*[:：].*?(?=\n[^\S\n]*\n|\Z"
    r"|\n[^\S\n]*(?:user|我|用户)[^\S\n]*[:：])",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_PERSONA: Final = mixed(
    r"^[^\S\n]*(?:you are (?:a|an|the)\b|you're (?:a|an) .{0,30}assistant|你是(?:一个|一名|一位)?[^。\n]{0,20}"
    r"(?:助手|助理|机器人|专家|AI)).*?(?=\n[^\S\n]*\n|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
# One character that unfolds to a sentence would make a short text long.
_LIGATURES: Final = dict.fromkeys([0xFDFA, 0xFDFB], " ")
_PATTERNS: Final = (
    _OWN_BLOCK,
    _OWN_LINE,
    _PROMPT_BLOCK,
    _OWN_PASSAGE,
    _OWN_SECTION,
    _FENCE,
    _QUOTED_LINE,
    _LABELLED,
    _PERSONA,
)


def own_words(text: str) -> str:
    """`text` without rendered memory, pasted prompts and transcripts, code and quoted lines."""
    seen = folded(text)
    for pattern in _PATTERNS:
        # Found in the folded text, cut out of both.
        places = [0, *(place for m in pattern.finditer(seen) for place in m.span()), len(seen)]
        if len(places) > 2:
            kept = list(zip(places[::2], places[1::2], strict=True))
            seen, text = ("\n".join(t[a:b] for a, b in kept) for t in (seen, text))
    return text.strip()


def holds_memory_block(text: str) -> bool:
    """Whether a memory block of this service is quoted in `text`."""
    return bool(_OWN_BLOCK.search(text) or _OWN_LINE.search(text))


def mineable(messages: tuple[Message, ...]) -> str:
    """The user's own words of a turn, a paragraph per message; "" when there are none."""
    speaker: str | None = None
    kept: list[str] = []
    for message in messages:
        if message.role is not Role.USER:
            continue
        if speaker is None:
            speaker = message.speaker
        if message.speaker not in ("", speaker):
            continue
        words = own_words(message.text)
        if words:
            kept.append(words)
    return "\n\n".join(kept)


def squeeze(text: str) -> str:
    """Text as quotes are compared: NFKC, casefold, spaces and punctuation out."""
    folded = unicodedata.normalize("NFKC", text.translate(_LIGATURES)).casefold()
    return "".join(c for c in folded if c.isalnum() or unicodedata.category(c) in {"So", "Sc"})
