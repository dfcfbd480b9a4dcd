# ruff: noqa: E501 - tables read better with one entry a line
"""What a model proposes against what the user said: quote, speaker, mood, language, safety.

Every refusal has a reason that is counted; nothing is repaired into something the user did not say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.memory import profile, safety
from services.memory.domain import Candidate, Cardinality, FactKind, Note, Origin, Source, Turn
from services.memory.extraction import notes as note_rules
from services.memory.extraction import voice
from services.memory.extraction.rules import valid_from
from services.memory.extraction.text import clip, language_of, sentences
from services.memory.safety.mineable import squeeze
from services.memory.script import folded
from services.search import tokenize

_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_MAX_FACTS: Final = 64
_CLAUSE: Final = re.compile(r"[，,。！？!?；;\n]|\.\s")
_FIRST_PERSON: Final = re.compile(
    r"^\s*(?:我们?|咱们?|本人)(?:也|很|最|都|还|就|现在|已经)*|^\s*(?:i|we)(?:'m| am|'ve| have)?\s+",
    re.IGNORECASE,
)


def _text(item: Mapping[str, Any], key: str, limit: int) -> str:
    value = item.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    return value.strip()[:limit] if isinstance(value, str) else ""


def _quoted_as_question(quote: str, own: str) -> bool:
    """Whether the quote stands in the user's words as (the end of) a question or an if-clause, as
    another's word, or as material, fiction or joke."""
    needle = squeeze(quote)
    if needle not in squeeze(voice.unquoted(own)):
        return True
    at = own.find(quote)
    first_person = voice.FIRST_PERSON.match(quote) is not None
    if at > 0 and first_person and voice.is_governed(_CLAUSE.split(own[:at])[-1]):
        return True
    held = False
    for sentence in sentences(own):
        words = squeeze(sentence.text)
        if needle not in words:
            continue
        # "I live in Berlin, is there a gym?" states the first part.
        if not sentence.distanced and not (sentence.question and words.endswith(needle)):
            return False
        held = True
    return held


def fact_of(item: Mapping[str, Any], turns: Sequence[Turn], own: Sequence[str]) -> Candidate | str:
    """The candidate of one proposed fact, or the reason why there is none."""
    quote, value = _text(item, "quote", 1_000), _text(item, "value", 500)
    if not quote or not value:
        return "incomplete"
    index = _turn_of(item, quote, own)
    if index is None:
        return "quote_not_found"
    turn, words = turns[index], own[index]
    if _quoted_as_question(quote, words):
        return "not_stated"
    if any(safety.is_injection(t) for t in (quote, value, _text(item, "statement", 600))):
        return "injection"
    language = language_of(quote if _HAN.search(quote) else words)
    statement = _text(item, "statement", 600)
    if language == "zh" and not _HAN.search(value) and squeeze(value) not in squeeze(quote):
        # An English-minded model translated: the user's own words are the value.
        first_person = _FIRST_PERSON.match(folded(quote))
        value = quote[first_person.end() if first_person else 0 :].strip(" 。.！!，,") or quote
        statement = ""
    attribute = profile.attribute_key(_text(item, "attribute", 64))
    if language == "zh" and not _HAN.search(statement):
        statement = ""
    statement = statement or profile.statement_of(attribute, value, language)
    if any(safety.is_sensitive(t) for t in (quote, value, statement)):
        return "sensitive"
    if not profile.is_answering(attribute) and not _said(value, words):
        return "value_not_said"
    wanted = FactKind.PREFERENCE if item.get("kind") == "preference" else FactKind.FACT
    cardinality = item.get("cardinality")
    return Candidate(
        kind=profile.kind_of(attribute, wanted, value, statement),
        attribute=attribute,
        value=value,
        statement=statement,
        quote=quote,
        turn_id=turn.turn_id,
        session_id=turn.session_id,
        event_time=turn.event_time,
        valid_from=valid_from(quote, turn),
        origin=Origin.LLM,
        language=language,
        cardinality=Cardinality(cardinality) if cardinality in ("one", "many") else None,
        ended=item.get("ended") is True,
    )


def _said(value: str, own: str) -> bool:
    """Whether a value shares a word, a character of Chinese or a number with the user's words: a
    quote that is there proves nothing of a value that is not."""
    terms, told = set(tokenize(value)), set(tokenize(own))
    if terms & told or set(_HAN.findall(value)) & set(_HAN.findall(own)):
        return True
    numbers = {int(n) for n in _NUMBER.findall(value)}
    if numbers & {int(n) for n in _NUMBER.findall(own)}:
        return True
    # Nothing to compare by: "C", "是".
    return squeeze(value) in squeeze(own)


def _turn_of(item: Mapping[str, Any], quote: str, own: Sequence[str]) -> int | None:
    """Index of the turn whose user words hold the quote: the one named, else the first that
    does."""
    needle = squeeze(quote)
    if not needle:
        return None
    number = item.get("turn")
    order = list(range(len(own)))
    if isinstance(number, int) and 1 <= number <= len(own):
        order.insert(0, number - 1)
    return next((i for i in order if needle in squeeze(own[i])), None)


def facts_of(
    items: object, turns: Sequence[Turn], own: Sequence[str]
) -> tuple[list[Candidate], dict[str, int]]:
    """Candidates of the proposed facts, and how many were refused for which reason."""
    out: list[Candidate] = []
    rejected: dict[str, int] = {}
    for item in items[:_MAX_FACTS] if isinstance(items, list) else []:
        found = fact_of(item, turns, own) if isinstance(item, dict) else "incomplete"
        if isinstance(found, Candidate):
            out.append(found)
        else:
            rejected[found] = rejected.get(found, 0) + 1
    return out, rejected


def notes_of(items: object, turns: Sequence[Turn], own: Sequence[str]) -> list[Note]:
    """Notes of the proposed ones: in the user's language, bounded, safe, grounded in their
    turns."""
    out: list[Note] = []
    for item in items[:_MAX_FACTS] if isinstance(items, list) else []:
        if not isinstance(item, dict):
            continue
        numbers = item.get("turns")
        if isinstance(numbers, int):
            numbers = [numbers]
        picked = sorted(
            {n - 1 for n in numbers if isinstance(n, int) and 1 <= n <= len(turns)}
            if isinstance(numbers, list)
            else set()
        )
        text = _text(item, "note", 500)
        if not picked or not text or not any(own[i] for i in picked):
            continue
        made = _note(text, [turns[i] for i in picked], [own[i] for i in picked])
        if made is not None:
            out.append(made)
    return out


def _note(text: str, turns: Sequence[Turn], own: Sequence[str]) -> Note | None:
    language = language_of(" ".join(own))
    if safety.is_injection(text) or safety.is_sensitive(text) or not _grounded(text, turns):
        return None
    if language == "zh" and not _HAN.search(text):
        return None
    limit = note_rules.MAX_ZH if language == "zh" else note_rules.MAX_EN * 2
    first = turns[0]
    dated, start, end = note_rules.dated(clip(text, limit), own, first, language)
    return Note(
        note=dated,
        session_id=first.session_id,
        event_time=first.event_time,
        sources=tuple(
            Source(t.turn_id, t.session_id, words[:1_000], t.event_time)
            for t, words in zip(turns, own, strict=True)
        ),
        origin=Origin.LLM,
        language=language,
        about_from=start,
        about_to=end,
    )


def _grounded(note: str, turns: Sequence[Turn]) -> bool:
    """Whether a note shares words with its turns: an example of the prompt does not."""
    terms = {t for t in tokenize(note) if len(t) > 1}
    said = {t for turn in turns for t in tokenize(turn.text)}
    return bool(terms & said)
