"""Questions for a calibration without labelled pairs: on the passages, and on other things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from services.retriever.reading.sentences import sentences

OFF_TOPIC: Final = (
    "sourdough starter feeding schedule", "offside rule in football",
    "how to prune an apple tree in winter", "best opening against the Sicilian defence",
    "symptoms of vitamin D deficiency", "knitting pattern for a baby hat",
    "when is high tide in Brest", "how to tune a twelve-string guitar",
    "chords of a bossa nova", "visa rules for a trip to Bhutan",
    "world record in pole vault", "how to remove red wine stains",
    "红烧肉怎么做才不腻", "围棋定式有哪些", "婴儿几个月可以吃辅食", "怎么给绿萝换盆",
    "今年世界杯在哪里举行", "羽毛球拍怎么穿线", "唐代诗人有哪些", "如何去除衣服上的油渍",
    "猫咪绝育后注意事项", "去西藏旅游几月份最好", "二胡入门曲目", "打太极拳的基本步法",
)  # fmt: skip
"""Questions that hardly any collection answers, in both languages."""


def questions_of(passages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(document id, question) made of passages: the middle sentence, without its last third.

    A question made of a passage's words is easier than a real one, so the anchors are a little
    high; pairs from real use are better and may be given instead.
    """
    out: list[tuple[str, str]] = []
    for document_id, text in passages:
        spans = [text[a:b].strip() for a, b in sentences(text)]
        fit_ones = [s for s in spans if 12 <= len(s) <= 300]
        if fit_ones:
            middle = fit_ones[len(fit_ones) // 2]
            out.append((document_id, middle[: max(8, len(middle) * 2 // 3)]))
    return out
