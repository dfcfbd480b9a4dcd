# ruff: noqa: E501 - tables read better with one entry a line
"""Sentences, languages and moods of user text, as far as extraction needs them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from services.common.unicode import mixed
from services.memory.extraction import voice
from services.memory.script import folded
from services.search.language import han_and_words

_SENTENCE: Final = mixed(
    r"[^。！？!?；;\n]*?(?:[。！？!?；;]+|\n|(?<!\be\.g)(?<!\bi\.e)\.(?=\s|$)|\Z)", re.DOTALL
)
_PARAGRAPH: Final = re.compile(r"\n[^\S\n]*\n")
_QUESTION: Final = re.compile(
    r"[?？]\s*$|(?:吗|呢|么|嘛|吧)[?？]\s*$|(?:吗|么)[。!！]?\s*$|^(?:是不是|有没有|能不能|可不可以|要不要|会不会|为什么|怎么|如何)"
)
_HYPOTHETICAL: Final = mixed(
    r"\b(?:if i|if we|were i|suppose|imagine|let'?s say|pretend|for example|e\.g|what if|would i|should i"
    r"|could i|i might|maybe i|perhaps i|i wish i|i would (?:be|have)|i'd (?:be|have)|hypothetically|in theory)\b"
    r"|如果我|要是我|假如我|假设我|假设|比如我|例如|打个比方|万一我|我要是|我如果|倘若|也许我|我可能会|我或许|想象一下",
    re.IGNORECASE,
    words=False,
)
_REPORTED: Final = mixed(
    r"\b(?:he|she|they|my \w+|[A-Z][a-z]+) (?:said|says|told me|claims?|wrote|asked)\b[^.]{0,12}[\"“'‘,:]"
    r"|\b(?:you|the assistant) (?:said|told me|mentioned)\b"
    r"|(?:他|她|他们|别人|朋友|同事|老板|妈妈|爸爸|老师|领导|客户|你)(?:们)?(?:跟我)?(?:说|讲|问|告诉我|提到)(?:过)?\s*[:：，,“\"「]",
    re.IGNORECASE,
    words=False,
)
_SMALL_TALK: Final = re.compile(
    r"^(?:hi|hello|hey|thanks?(?: you)?(?: (?:so|very) much| a lot)?|thx|ok(?:ay)?|great|nice|cool|bye|good (?:morning"
    r"|night|evening)|sure|yes|no|got it|sounds good|perfect|lol"
    r"|你好|您好|嗨|在吗|谢谢(?:你|您|啦|了)?|多谢|好的?|好吧|行|可以|嗯+|哦+|明白了?|知道了|收到|再见|拜拜|早上好|晚安|哈+|没事|不客气|对|是的?)"
    r"[\s.!！。~～,，]*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Sentence:
    """One sentence with its mark, and whether it asserts something."""

    text: str
    question: bool
    hypothetical: bool
    reported: bool
    framed: bool = False

    @property
    def distanced(self) -> bool:
        """True where the speaker claims nothing: an "if", another's word, fiction, material, a
        joke."""
        return self.hypothetical or self.reported or self.framed


def language_of(text: str) -> str:
    """ "zh" when a noticeable part of the text is Han, else "en"."""
    han, words = han_and_words(text)
    return "zh" if han and han * 2 >= words else "en"


def sentences(text: str) -> list[Sentence]:
    """Sentences of `text` in order, blank ones left out."""
    out: list[Sentence] = []
    carried = False
    for paragraph in _PARAGRAPH.split(text):
        pieces = [p for m in _SENTENCE.finditer(paragraph) if (p := m.group().strip())]
        if not pieces:
            continue
        frames, carried = voice.framed(pieces, carried)
        out += [
            Sentence(
                piece,
                question=bool(_QUESTION.search(seen)),
                hypothetical=bool(_HYPOTHETICAL.search(seen)),
                reported=bool(_REPORTED.search(seen)),
                framed=framed,
            )
            for piece, seen, framed in zip(pieces, map(folded, pieces), frames, strict=True)
        ]
    return out


def is_small_talk(text: str) -> bool:
    """Greetings, thanks and other text that is not worth a note."""
    plain = folded(text.strip())
    return len(plain) < 2 or bool(_SMALL_TALK.match(plain))


def clip(text: str, limit: int) -> str:
    """`text` on one line and at most `limit` characters, cut at a mark or word where there is one."""
    flat = re.sub(r"\s+", " ", text).strip()
    if len(flat) <= limit:
        return flat
    head = flat[: limit - 1]
    cut = max(head.rfind(mark) for mark in "，。；,;、 .")
    return (head[:cut] if cut >= limit // 2 else head).rstrip("，。；,;、 .") + "…"
