"""The two extractors behind one interface: by a language model, or by rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from services.common.llm import ChatClient, Completion, JsonUnusable, parse_object
from services.common.llm.jsonish import parse_objects
from services.memory import safety
from services.memory.domain import Candidate, Extraction, Note, Origin, Turn
from services.memory.extraction import check, notes, rules
from services.memory.prompts import extract as prompt


class GarbageAnswer(Exception):
    """The model answered, but not with a readable object. Holds token counts, never its text."""

    def __init__(self, completion: Completion) -> None:
        super().__init__("the model's answer is unreadable")
        self.completion = completion


@dataclass(frozen=True)
class Outcome:
    """An extraction and what it cost; `completion` is None for rules."""

    extraction: Extraction
    completion: Completion | None = None


class Extractor(Protocol):
    """Turns in, proposals out. `earlier`: the turns before, for context (oldest first)."""

    async def extract(self, turns: Sequence[Turn], earlier: Sequence[Turn]) -> Outcome:
        """Proposals of `turns` (of one session, oldest first)."""


def _merged(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in {*first, *second}}


class RulesExtractor:
    """Rules of both languages and quoting notes."""

    async def extract(self, turns: Sequence[Turn], earlier: Sequence[Turn]) -> Outcome:
        """See `Extractor`. Never fails."""
        found: list[Candidate] = []
        rejected: dict[str, int] = {}
        made: list[Note] = []
        before = list(earlier)
        for turn in turns:
            candidates, refused = rules.extract(turn)
            found += candidates
            rejected = _merged(rejected, refused)
            note = notes.note_of(turn, before)
            if note is not None:
                made.append(note)
            before.append(turn)
        return Outcome(Extraction(tuple(found), tuple(made), rejected, Origin.RULES))


class LlmExtractor:
    """One call for several turns; every proposal is checked against the user's words."""

    def __init__(self, client: ChatClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def extract(self, turns: Sequence[Turn], earlier: Sequence[Turn]) -> Outcome:
        """See `Extractor`. Raises DomainError (provider) and GarbageAnswer (unreadable answer)."""
        own = [safety.mineable(turn.messages) for turn in turns]
        if not any(own):
            return Outcome(Extraction(origin=Origin.LLM))
        completion = await self._client.complete(
            prompt.messages(turns, own),
            response_format={"type": "json_object"},
            timeout_s=self._timeout_s,
        )
        data = _answer(completion)
        candidates, rejected = check.facts_of(data["facts"], turns, own)
        proposed = check.notes_of(data.get("notes"), turns, own)
        if not proposed and "notes" not in data:
            # A model that knows no notes still leaves the exchange findable.
            rule_notes = (notes.note_of(t, [*earlier, *turns[:i]]) for i, t in enumerate(turns))
            proposed = [note for note in rule_notes if note is not None]
        extraction = Extraction(tuple(candidates), tuple(proposed), rejected, Origin.LLM)
        return Outcome(extraction, completion)


def _answer(completion: Completion) -> Mapping[str, Any]:
    """The object with the facts, or a bare list of them. Raises GarbageAnswer."""
    try:
        data = parse_object(completion.text, "facts")
    except JsonUnusable as error:
        try:
            return {"facts": parse_objects(completion.text, "quote")}
        except JsonUnusable:
            raise GarbageAnswer(completion) from error
    if not isinstance(data["facts"], list):
        raise GarbageAnswer(completion)
    return data
