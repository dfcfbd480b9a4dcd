# ruff: noqa: E501 - tables read better with one entry a line
"""Facts by rules, for the set-up without a language model: common statements in both languages.

Precision over recall: a rule takes plain first-person statements only, never questions, hypotheses,
reported speech or quoted text, and every fact carries the clause it rests on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from services.memory import profile, safety, timex
from services.memory.domain import Candidate, Origin, Turn
from services.memory.extraction import rules_en, rules_zh
from services.memory.extraction.found import Found
from services.memory.extraction.text import language_of, sentences


def valid_from(clause: str, turn: Turn) -> datetime:
    """From when a statement is true: a past time it names, else when it was said."""
    for span in timex.resolve(clause, turn.event_time, turn.time_zone):
        if span.about < turn.event_time - timedelta(hours=1):
            return span.about
    return turn.event_time


def extract(turn: Turn) -> tuple[list[Candidate], dict[str, int]]:
    """Candidates of one turn, and what was refused by reason."""
    own = safety.mineable(turn.messages)
    found: list[Candidate] = []
    rejected: dict[str, int] = {}
    for sentence in sentences(own):
        text = sentence.text
        if safety.is_injection(text):
            rejected["injection"] = rejected.get("injection", 0) + 1
            continue
        language = language_of(text)
        rules = rules_zh.rules() if language == "zh" else rules_en.rules()
        for clause, question in _clauses(text, sentence.question, language):
            if question or sentence.hypothetical or sentence.reported:
                continue
            for candidate in _candidates(rules, clause, language, turn):
                if safety.is_sensitive(candidate.statement) or safety.is_sensitive(candidate.quote):
                    rejected["sensitive"] = rejected.get("sensitive", 0) + 1
                else:
                    found.append(candidate)
    return _distinct(found), rejected


def _clauses(text: str, question: bool, language: str) -> list[tuple[str, bool]]:
    """Clauses of a sentence; only the last one of a question is the question."""
    mark = (
        r"[，,、](?![\d])"
        if language == "zh"
        else r",\s+(?:and |but |so )?|\s+(?:and|but) (?=i['’ ]|my |we )"
    )
    parts = [p.strip() for p in re.split(mark, text, flags=re.IGNORECASE) if p and p.strip()]
    return [(p, question and i == len(parts) - 1) for i, p in enumerate(parts)]


def _candidates(
    rules: Sequence[tuple[re.Pattern[str], object]], clause: str, language: str, turn: Turn
) -> list[Candidate]:
    out: list[Candidate] = []
    for pattern, make in rules:
        match = pattern.search(clause)
        if match is None:
            continue
        found = make(match) if callable(make) else make
        if not isinstance(found, Found):
            continue
        value = trim(found.value or match.groupdict().get("v") or "", language)
        if not value or len(value) > 200:
            continue
        attribute = profile.attribute_key(found.attribute)
        out.append(
            Candidate(
                kind=profile.kind_of(attribute, found.kind),
                attribute=attribute,
                value=value,
                statement=profile.statement_of(attribute, value, language),
                quote=clause,
                turn_id=turn.turn_id,
                session_id=turn.session_id,
                event_time=turn.event_time,
                valid_from=valid_from(clause, turn),
                origin=Origin.RULES,
                language=language,
                cardinality=found.cardinality,
                ended=found.ended,
            )
        )
        break
    return out


_TAIL_ZH: Final = re.compile(
    r"(?:了|呢|吧|啊|呀|哦|啦|的话|而已|就行|就好|就可以|即可|也行|哈|喔|嘛|的)+$"
)
_TAIL_EN: Final = re.compile(
    r"\s+(?:now|these days|nowadays|today|at the moment|right now|currently|too|as well|please|instead|"
    r"from now on|a lot|very much|so much|yesterday|last (?:week|month|year)|since .*|in (?:19|20)\d\d|for .*)$",
    re.IGNORECASE,
)


def trim(value: str, language: str) -> str:
    """A captured value without quotes, particles and adverbs at its ends."""
    value = value.strip(" \t\"'“”‘’「」『』《》:：,，.。!！;；、")
    if language == "zh":
        stripped = _TAIL_ZH.sub("", value)
        return (stripped or value).strip(" \"'“”「」")
    value = re.sub(r"^(?:an?|the) (?=\w)", "", value, flags=re.IGNORECASE)
    previous = None
    while previous != value:
        previous, value = value, _TAIL_EN.sub("", value).strip(" \"'“”,.")
    return value


def _distinct(found: list[Candidate]) -> list[Candidate]:
    seen: set[tuple[str, str, bool]] = set()
    out: list[Candidate] = []
    for candidate in found:
        key = (candidate.attribute, profile.value_key(candidate.value), candidate.ended)
        if key not in seen:
            seen.add(key)
            out.append(candidate)
    return out


__all__ = ["extract", "trim", "valid_from"]
