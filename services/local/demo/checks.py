"""What must hold at the end of the demo. Each check can fail, and says what it saw."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from nianlun import Client
from services.local.demo.documents import COLLECTION, Ingested, Source
from services.local.demo.script import Question
from services.local.demo.talk import Outcome

_LEAST_CHARS = 60_000
# Markdown marks may be gone from a passage; letters, digits and Chinese characters may not.
_MARKS = re.compile(r"[\W_]+")
_LEAST_SHARE = 0.9


def check_documents(sources: Sequence[Source], ingested: Ingested) -> Iterator[str]:
    """Enough text, in both languages, and all of it stored."""
    if ingested.chars < _LEAST_CHARS:
        yield f"the documents have {ingested.chars:,} characters, {_LEAST_CHARS:,} are wanted"
    if ingested.chunks < len(sources):
        yield f"{len(sources)} documents became only {ingested.chunks} chunks"


def check_answer(
    question: Question, outcome: Outcome, texts: Mapping[str, str], client: Client
) -> Iterator[str]:
    """One answer: what it must say, what it must rest on, and that the stream was in order."""
    if not any(word.casefold() in outcome.answer.casefold() for word in question.contains_any):
        yield f"the answer has none of {question.contains_any}: {outcome.answer!r}"
    remembered = " ".join(memory.text for memory in outcome.memories).casefold()
    if question.remembers_any and not any(
        word.casefold() in remembered for word in question.remembers_any
    ):
        yield f"no memory used has any of {question.remembers_any}"
    if outcome.completed_events != 1:
        yield f"{outcome.completed_events} completed events instead of one"
    if not outcome.steps:
        yield "no steps were reported"
    if question.cites:
        yield from _check_citations(outcome, texts, client)
        if outcome.tokens.whole_documents <= outcome.tokens.evidence:
            yield "retrieval saved no tokens, or they were not counted"


def _check_citations(outcome: Outcome, texts: Mapping[str, str], client: Client) -> Iterator[str]:
    if not outcome.citations:
        yield "the answer cites nothing"
    for citation in outcome.citations:
        text = texts.get(citation.document_id)
        if text is None:
            yield f"cited {citation.document_id!r}, which is no document of ours"
            continue
        if _share_of_lines(citation.text, text) < _LEAST_SHARE:
            yield f"the passage cited from {citation.document_id} is not in it: {citation.text!r}"
        stored = client.get_document(COLLECTION, citation.document_id).document
        if stored.document_id != citation.document_id or not citation.chunk_id:
            yield f"the ids of a citation are not real: {citation.document_id}, {citation.chunk_id}"


def _share_of_lines(passage: str, text: str) -> float:
    """The share of a passage's lines that stand in the text, marks and spaces aside."""
    whole = _bare(text)
    lines = [bare for line in passage.splitlines() if (bare := _bare(line))]
    if not lines:
        return 0.0
    return sum(line in whole for line in lines) / len(lines)


def _bare(text: str) -> str:
    return _MARKS.sub("", unicodedata.normalize("NFKC", text)).casefold()
