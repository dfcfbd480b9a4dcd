# ruff: noqa: E501 - tables read better with one entry a line
"""Episode notes by rules: third-person notes of what was said, asked and decided.

They quote the user's own words briefly; without a language model nothing is paraphrased, so nothing
is invented. Notes made here carry `Origin.RULES`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from services.common.unicode import mixed
from services.memory import safety, timex
from services.memory.domain import Note, Origin, Role, Source, Turn
from services.memory.extraction.text import clip, is_small_talk, language_of, sentences
from services.memory.script import folded

_DECISION: Final = mixed(
    r"(?:决定|敲定|确定|选定|就用|就选|就定|定为|定了|改用|换成|采用|最终|最后还是|那就)"
    r"|\b(?:decided|settled on|go(?:ing)? with|let'?s (?:use|go|pick|choose)|we'?ll use|i'?ll use|switch(?:ed)? to"
    r"|chose|picked)\b",
    re.IGNORECASE,
)
_FILLER: Final = re.compile(
    r"^(?:好的?|嗯+|行|那|对|是的|可以|谢谢|那么|另外|还有|请问|ok(?:ay)?|yes|well|so|sure|great|thanks|please)[，,。.!！\s]+",
    re.IGNORECASE,
)
MAX_ZH: Final = 60
MAX_EN: Final = 160


def _without_filler(sentence: str) -> str:
    filler = _FILLER.match(folded(sentence))
    return sentence[filler.end() :].strip() if filler else sentence.strip()


def _key_sentence(text: str, limit: int) -> str:
    """The sentence of an answer that says most: the first one that is neither filler nor
    question."""
    for sentence in sentences(text):
        plain = _without_filler(sentence.text)
        if len(plain) >= 4 and not sentence.question and not safety.is_sensitive(plain):
            return clip(plain.rstrip("。.！!"), limit)
    return ""


def _own_sentences(turn: Turn) -> list[tuple[str, bool]]:
    """(sentence, is a question) of the user's own words that may be kept."""
    kept: list[tuple[str, bool]] = []
    for sentence in sentences(safety.mineable(turn.messages)):
        plain = _without_filler(sentence.text)
        if is_small_talk(plain) or safety.is_injection(sentence.text) or safety.is_sensitive(plain):
            continue
        kept.append((plain, sentence.question))
    return kept


def _topic(earlier: Sequence[Turn], limit: int) -> str:
    """What the talk was about: the user's question, or longest sentence, of the turns before."""
    for turn in reversed(earlier[-3:]):
        own = _own_sentences(turn)
        asked = [text for text, question in own if question] or [text for text, _ in own]
        if asked:
            return clip(max(asked, key=len).rstrip("？?。."), limit)
    return ""


def note_of(turn: Turn, earlier: Sequence[Turn]) -> Note | None:
    """The note of one turn, or None where nothing in it is worth one.

    `earlier`: the turns before it in the session, oldest first; they give a decision its topic.
    """
    own = _own_sentences(turn)
    if not own:
        return None
    language = language_of(" ".join(text for text, _ in own))
    text = _compose(turn, own, earlier, language)
    if not text or safety.is_sensitive(text) or safety.is_injection(text):
        return None
    quote = " ".join(text for text, _ in own)[:1_000]
    about = _about(quote, turn)
    return Note(
        note=text + _dated(about, turn, language),
        session_id=turn.session_id,
        event_time=turn.event_time,
        sources=(Source(turn.turn_id, turn.session_id, quote, turn.event_time),),
        origin=Origin.RULES,
        language=language,
        about_from=about[0] if about else None,
        about_to=about[1] if about else None,
    )


def _compose(
    turn: Turn, own: list[tuple[str, bool]], earlier: Sequence[Turn], language: str
) -> str:
    chinese = language == "zh"
    limit = MAX_ZH if chinese else MAX_EN
    decisions = [text for text, question in own if not question and _DECISION.search(folded(text))]
    answer = next((m.text for m in reversed(turn.messages) if m.role is Role.ASSISTANT), "")
    if decisions:
        said = clip(decisions[0].rstrip("。.！!"), limit // 2)
        topic = _topic(earlier, limit - len(said) - 14)
        if chinese:
            return f"用户决定：{said}" + (f"（谈的是：{topic}）" if topic else "")
        return f"The user decided: {said}" + (f" (about: {topic})" if topic else "")
    questions = [text for text, question in own if question]
    if questions:
        asked = clip(max(questions, key=len).rstrip("？?"), limit // 2)
        reply = _key_sentence(answer, limit - len(asked) - 12)
        if chinese:
            return f"用户问：{asked}" + (f"；答：{reply}" if reply else "")
        return f"The user asked: {asked}" + (f"; answer: {reply}" if reply else "")
    said = clip(
        "；".join(text.rstrip("。.！!") for text, _ in own)
        if chinese
        else "; ".join(text.rstrip(".!") for text, _ in own),
        limit - 12,
    )
    return f"用户说：{said}" if chinese else f"The user said: {said}"


def _about(text: str, turn: Turn) -> tuple[datetime, datetime, datetime] | None:
    """(start, end, likeliest instant) of the first time the text names that is not just "today"."""
    for span in timex.resolve(text, turn.event_time, turn.time_zone):
        return span.start, span.end, span.about
    return None


def _dated(about: tuple[datetime, datetime, datetime] | None, turn: Turn, language: str) -> str:
    if about is None:
        return ""
    start, end, likely = about
    day = f"{likely:%Y-%m-%d}"
    if (end - start).total_seconds() <= 60:
        day = f"{start:%Y-%m-%d %H:%M%z}"
        day = f"{day[:-2]}:{day[-2:]}"
    exact = (end - start).total_seconds() <= 90_000
    if language == "zh":
        return f"（{'' if exact else '约 '}{day}）"
    return f" ({'' if exact else 'about '}{day})"


def dated(
    note: str, quotes: Sequence[str], turn: Turn, language: str
) -> tuple[str, datetime | None, datetime | None]:
    """A note with the time its quotes name, resolved; unchanged where they name none or it says
    so."""
    about = next((found for quote in quotes if (found := _about(quote, turn))), None)
    if about is None:
        return note, None, None
    has_date = re.search(r"\d{4}[-年/]", note) is not None
    return (note if has_date else note + _dated(about, turn, language)), about[0], about[1]
