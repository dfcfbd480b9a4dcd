"""retrieve: evidence for this message. Selected text first, then passages, else the documents' own
text.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common.errors import DomainError
from services.common.unicode import mixed
from services.orchestrator import tokens
from services.orchestrator.engine import Failure, Outcome, skipped
from services.orchestrator.intents import INTENTS
from services.orchestrator.ports import DocumentText, Knowledge
from services.orchestrator.turn import Turn
from services.search.language import is_short_query
from services.search.simplified import simplify

_REFERS_BACK = mixed(
    r"[它其]|这个|那个|上面|前面|前者|后者|\b(it|its|this|that|they|them|those|these)\b",
    re.IGNORECASE,
)
_OVERVIEW = {
    "zh": "摘要 背景 目标 方法 结果 结论",
    "en": "abstract background goal method results conclusion",
}
_PIECE_CHARS = 1_600
_FALLBACK_DOCUMENTS = 3


@dataclass(frozen=True)
class Retrieve:
    """Searches knowledge; `evidence_tokens` bounds what a fallback reads."""

    knowledge: Knowledge
    evidence_tokens: int

    async def run(self, turn: Turn) -> Outcome:
        """Fill `turn.evidence` (ids are given when the prompt is made)."""
        _selection(turn)
        asked = turn.input
        zh = asked.language == "zh"
        if not asked.use_retrieval:
            return skipped("检索已关闭" if zh else "retrieval is switched off")
        if not asked.collection_id:
            return skipped("没有指定资料库" if zh else "no collection was given")
        size = asyncio.create_task(self._size(turn))
        try:
            await self._search(turn)
        finally:
            if not size.done():
                await asyncio.wait({size}, timeout=0.05)
            size.cancel()
        counts = {
            "hits": str(len(turn.retrieved.evidence)),
            "held_back": str(turn.retrieved.held_back),
            "confidence": turn.retrieved.confidence,
        }
        if not turn.evidence and asked.document_ids:
            await self._document_text(turn)
            return Outcome(status=pb.STEP_STATUS_FALLBACK, counts=counts)
        return Outcome(counts=counts)

    async def fallback(self, turn: Turn, failure: Failure) -> Outcome:
        """The documents' own text where documents were given; else no evidence, flagged."""
        zh = turn.input.language == "zh"
        message = "检索服务没有及时应答" if zh else "the retriever did not answer"
        turn.degrade(
            common_pb2.DEGRADATION_KIND_RETRIEVAL_SKIPPED,
            "retrieve",
            message,
            reason=failure.reason,
        )
        retrieved_nothing = (
            not turn.evidence or turn.evidence[-1].source == pb.EVIDENCE_SOURCE_SELECTION
        )
        if turn.input.document_ids and retrieved_nothing and failure.reason != "DEADLINE_EXCEEDED":
            await self._document_text(turn)
        return Outcome(status=pb.STEP_STATUS_FALLBACK, message=failure.message)

    async def _search(self, turn: Turn) -> None:
        spec = INTENTS[turn.intent]
        if turn.intent == pb.INTENT_PERSONALISED_SUMMARY and len(turn.input.document_ids) == 1:
            await self._overview(turn)
            return
        turn.retrieved = await self.knowledge.search(
            turn.input, _query(turn), turn.input.top_k, gated=spec.gated
        )
        turn.report_all(turn.retrieved.degradations)
        turn.evidence += turn.retrieved.evidence
        if len(turn.input.document_ids) == 1 and turn.retrieved.evidence:
            turn.title = turn.input.document_title or turn.retrieved.evidence[0].title

    async def _overview(self, turn: Turn) -> None:
        """A summary reads the document: all of it where it fits, else its beginning and its key
        passages.
        """
        asked = turn.input
        document = await self.knowledge.document(
            asked, asked.document_ids[0], self.evidence_tokens * 4
        )
        turn.title = asked.document_title or document.title
        whole = len(document.text) >= document.total_chars
        fits = tokens.estimate(document.text) <= self.evidence_tokens
        if whole and fits:
            turn.evidence += _pieces(document, self.evidence_tokens)
            return
        turn.evidence += _pieces(document, self.evidence_tokens // 3)
        turn.retrieved = await self.knowledge.search(
            asked, _OVERVIEW[asked.language], asked.top_k, gated=False
        )
        turn.report_all(turn.retrieved.degradations)
        beginning = "".join(item.text for item in turn.evidence)
        turn.evidence += [e for e in turn.retrieved.evidence if e.text not in beginning]

    async def _document_text(self, turn: Turn) -> None:
        asked = turn.input
        ids = asked.document_ids[:_FALLBACK_DOCUMENTS]
        found: list[pb.Evidence] = []
        for document_id in ids:
            try:
                document = await self.knowledge.document(
                    asked, document_id, self.evidence_tokens * 4
                )
            except DomainError as error:
                turn.degrade(
                    common_pb2.DEGRADATION_KIND_RETRIEVAL_SKIPPED,
                    "retrieve",
                    "a document could not be read",
                    document_id=document_id,
                    reason=error.reason,
                )
                continue
            turn.title = turn.title or asked.document_title or document.title
            found += _pieces(document, self.evidence_tokens // len(ids))
        turn.evidence += found
        if found:
            turn.document_fallback = True
            zh = asked.language == "zh"
            turn.degrade(
                common_pb2.DEGRADATION_KIND_DOCUMENT_TEXT_FALLBACK,
                "retrieve",
                "检索没有结果，改用文档原文"
                if zh
                else "nothing was found: the documents' own text was used",
            )

    async def _size(self, turn: Turn) -> None:
        """Tokens of the whole documents in scope, for comparison only: failures
        leave it unknown.
        """
        try:
            chars = await self.knowledge.scope_chars(turn.input)
        except DomainError:
            return
        ratio = 0.6 if turn.input.language == "zh" else 0.25
        turn.whole_document_tokens = int(chars * ratio)


def _selection(turn: Turn) -> None:
    if turn.input.selected_text:
        turn.evidence.append(
            pb.Evidence(
                source=pb.EVIDENCE_SOURCE_SELECTION,
                collection_id=turn.input.collection_id,
                document_id=turn.input.document_ids[0] if turn.input.document_ids else "",
                title=turn.input.document_title,
                text=turn.input.selected_text[:8_000],
                score=1.0,
            )
        )


def _query(turn: Turn) -> str:
    """The message; a short or back-referring one is read together with the user's
    previous message.
    """
    message = turn.input.message
    previous = [line.text for line in turn.history.lines if line.role == "user"]
    if previous and (is_short_query(message) or _REFERS_BACK.search(simplify(message))):
        return f"{previous[-1][:500]}\n{message}"
    return message


def _pieces(document: DocumentText, budget: int) -> list[pb.Evidence]:
    """The beginning of a document as passages, within `budget` tokens."""
    text = tokens.cut(document.text, budget)
    pieces: list[pb.Evidence] = []
    start = 0
    while start < len(text):
        end = min(len(text), start + _PIECE_CHARS)
        if end < len(text):
            line_end = text.rfind("\n", start + _PIECE_CHARS // 2, end)
            end = line_end + 1 if line_end > 0 else end
        body = text[start:end].strip()
        start = end
        if body:
            pieces.append(
                pb.Evidence(
                    source=pb.EVIDENCE_SOURCE_DOCUMENT_TEXT,
                    collection_id=document.collection_id,
                    document_id=document.document_id,
                    title=document.title,
                    text=body,
                )
            )
    return pieces
