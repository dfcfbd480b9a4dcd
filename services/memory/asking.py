# ruff: noqa: E501 - tables read better with one entry a line
"""Whether a question asks for something that was talked about before.

"What was that tool called last time?" shares no word with "Let's go with Pulumi", yet says itself that
the answer is a memory: the gate's doubt whether any memory is meant does not apply to it.
"""

from __future__ import annotations

import re
from typing import Final

from services.common.unicode import mixed
from services.memory.script import folded

_ASKS_BACK: Final = mixed(
    r"\blast time\b|\bthe other day\b|\bremind me (?:what|which|who|where|when|how|of)\b|\bagain\?\s*$"
    r"|\b(?:do you|you) remember\b|\bi forgot (?:what|which|the|how|who|where|when)\b"
    r"|\bdid (?:we|i|you) (?:\w+ )?(?:decide|pick|choose|settle|say|talk|discuss|mention|agree|recommend"
    r"|suggest|call|tell|plan)\b"
    r"|\b(?:we|i) (?:had |have |'ve )?(?:just |finally |already )?(?:settled|decided|picked|chose|agreed"
    r"|discussed|talked|mentioned|planned)\b"
    r"|\byou (?:said|told me|mentioned|recommended|suggested)\b"
    r"|上次|上回|那次|来着|还记得|记不记得|记得我|提醒(?:我|一下)|想不起来"
    r"|(?:之前|以前|刚才|先前|前面|前几天|那天|早些时候)(?:我们?|你|咱们?)?(?:说|聊|谈|提|定|选|讲|问|推荐|建议|的那)"
    r"|(?:我们|咱们?|你)(?:最后|最终|当时|后来|到底)?(?:定|选|决定|商量|说|聊|谈|推荐|建议)(?:了|的|过)(?!吗)"
    r"|(?:说|聊|谈|提|讲)过(?:的|什么|哪)|忘了(?:叫|是)|(?:名字|叫什么).{0,4}忘了",
    re.IGNORECASE,
)


def asks_back(query: str) -> bool:
    """True for questions about earlier talk, in Chinese or English."""
    return len(query) <= 400 and _ASKS_BACK.search(folded(query)) is not None
