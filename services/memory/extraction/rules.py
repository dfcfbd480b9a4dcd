# ruff: noqa: E501 - tables read better with one entry a line
"""Facts by rules, for the set-up without a language model: common statements in both languages.

Precision over recall: a rule takes plain first-person statements only, never questions, hypotheses,
reported speech or quoted text, and every fact carries the clause it rests on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from services.memory import profile, safety, timex
from services.memory.domain import Candidate, Origin, Turn
from services.memory.extraction import rules_en, rules_zh, voice
from services.memory.extraction.found import Found, Rule
from services.memory.extraction.text import language_of, sentences
from services.memory.keys import value_key
from services.memory.script import as_said, folded


def valid_from(clause: str, turn: Turn) -> datetime:
    """From when a statement is true: a past time it names, else when it was said."""
    for span in timex.resolve(clause, turn.event_time, turn.time_zone):
        if span.about < turn.event_time - timedelta(hours=1):
            return span.about
    return turn.event_time


def extract(turn: Turn) -> tuple[list[Candidate], dict[str, int]]:
    """Candidates of one turn, and what was refused by reason."""
    own = voice.unquoted(safety.mineable(turn.messages))
    found: list[Candidate] = []
    rejected: dict[str, int] = {}
    greeted = False
    for sentence in sentences(own):
        text = sentence.text
        if safety.is_injection(text):
            rejected["injection"] = rejected.get("injection", 0) + 1
            continue
        if not sentence.distanced:
            language = language_of(text)
            for clause in _clauses(text, sentence.question, language, greeted):
                for candidate in _candidates(clause, language, turn):
                    if safety.is_sensitive(candidate.statement) or safety.is_sensitive(
                        candidate.quote
                    ):
                        rejected["sensitive"] = rejected.get("sensitive", 0) + 1
                    else:
                        found.append(candidate)
        greeted = voice.is_greeting(text)
    return _distinct(found), rejected


@dataclass(frozen=True)
class _Clause:
    """A clause that may state something. `greeted`: it follows a greeting; `continued`: its
    sentence began with a subject, and `own`: that was the speaker."""

    text: str
    greeted: bool = False
    continued: bool = False
    own: bool = False


def _clauses(text: str, question: bool, language: str, greeted: bool) -> list[_Clause]:
    """Clauses of a sentence that the speaker states; only the last one of a question is the
    question, and what follows "he says," is not the speaker's."""
    parts = [p.strip() for p in _MARKS[language].split(text) if p and p.strip()]
    out: list[_Clause] = []
    subject: bool | None = None
    handed = False
    for number, part in enumerate(parts):
        asks = question and number == len(parts) - 1
        if not asks and not handed:
            out.append(_Clause(part, greeted, subject is not None, bool(subject)))
        if subject is None and language == "zh":
            subject = rules_zh.subject_of(folded(part))
        handed = voice.hands_on(part)
        greeted = voice.is_greeting(part)
    return out


_MARKS: Final = {
    "zh": re.compile(r"[，,、](?![\d])"),
    "en": re.compile(r",\s+(?:and |but |so )?|\s+(?:and|but) (?=i['’ ]|my |we )", re.IGNORECASE),
}


def _candidates(clause: _Clause, language: str, turn: Turn) -> list[Candidate]:
    rules: Sequence[Rule] = rules_zh.rules() if language == "zh" else rules_en.rules()
    seen = folded(clause.text)
    for rule in rules:
        if rule.greeted and not clause.greeted:
            continue
        match = rule.pattern.search(seen)
        if match is None:
            continue
        lead = seen[: match.start()]
        if rule.lead is not None:
            if not rule.lead.match(lead.strip()):
                continue
        elif not voice.is_own(lead, language):
            continue
        if rule.subjectless and clause.continued and not clause.own:
            continue
        if rule.continues and not clause.own:
            continue
        if lead.count("《") > lead.count("》"):
            continue
        made = rule.make(match) if callable(rule.make) else rule.make
        out = [
            candidate
            for found in (made if isinstance(made, tuple) else (made,))
            if found is not None
            and (candidate := _candidate(found, match, clause.text, language, turn)) is not None
        ]
        if out:
            return out
    return []


def _candidate(
    found: Found, match: re.Match[str], clause: str, language: str, turn: Turn
) -> Candidate | None:
    named = found.value or match.groupdict().get("v") or ""
    # Named by the folded clause, kept as the user wrote it.
    value = trim(as_said(clause, match.string, named, match.start()), language)
    if not value or len(value) > 200 or voice.is_deictic(value):
        return None
    attribute = profile.attribute_key(found.attribute)
    statement = profile.statement_of(attribute, value, language)
    return Candidate(
        kind=profile.kind_of(attribute, found.kind, value, statement),
        attribute=attribute,
        value=value,
        statement=statement,
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


_TAIL_ZH: Final = re.compile(
    r"(?:了|呢|吧|啊|呀|哦|啦|的话|而已|就行|就好|就可以|即可|也行|哈|喔|嘛|的)+$"
)
_TAIL_EN: Final = re.compile(
    r"\s+(?:now|these days|nowadays|today|at the moment|right now|currently|too|as well|please|instead|"
    r"from now on|a lot|very much|so much|yesterday|last (?:week|month|year)|since .*|in (?:19|20)\d\d|(?:in|on|last|this) (?:january|february|march|april|may|june|july|august|september|october|november|december|spring|summer|autumn|winter|monday|tuesday|wednesday|thursday|friday)|for .*)$",
    re.IGNORECASE,
)


def trim(value: str, language: str) -> str:
    """A captured value without quotes, particles and adverbs at its ends."""
    value = " ".join(value.split()).strip(" \"'“”‘’「」『』《》:：,，.。!！;；、")
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
        key = (candidate.attribute, value_key(candidate.value), candidate.ended)
        if key not in seen:
            seen.add(key)
            out.append(candidate)
    return out


__all__ = ["extract", "trim", "valid_from"]
