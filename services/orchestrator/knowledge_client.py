"""The retriever behind the Knowledge seam: the one search entry of chat, tools, extraction and
verification.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from nianlun.retriever.v1 import retriever_pb2, retriever_pb2_grpc
from services.common import context, errors
from services.orchestrator import scope
from services.orchestrator.domain import Retrieved, TurnInput
from services.orchestrator.ports import DocumentText

_CONFIDENCE = {
    retriever_pb2.CONFIDENCE_NONE: "none",
    retriever_pb2.CONFIDENCE_LOW: "low",
    retriever_pb2.CONFIDENCE_MEDIUM: "medium",
    retriever_pb2.CONFIDENCE_HIGH: "high",
}
_LEGS = {
    retriever_pb2.LEG_DENSE: "dense",
    retriever_pb2.LEG_LEXICAL: "lexical",
    retriever_pb2.LEG_PHRASE: "phrase",
}
_PASSAGE_CHARS = 8_000
_COUNTED_DOCUMENTS = 500
_SIZE_CACHE_S = 60.0
_SIZE_CACHE_ENTRIES = 512


@dataclass(frozen=True)
class _Size:
    chars: int
    until: float


class GrpcKnowledge:
    """Knowledge over gRPC; the channel forwards credential, request id and deadline."""

    def __init__(self, stub: retriever_pb2_grpc.RetrieverServiceAsyncStub) -> None:
        self._stub = stub
        self._sizes: OrderedDict[tuple[str, bytes], _Size] = OrderedDict()

    async def search(
        self, turn: TurnInput, query: str, top_k: int, *, gated: bool = True
    ) -> Retrieved:
        """See Knowledge."""
        gate = retriever_pb2.GATE_MODE_UNSPECIFIED if gated else retriever_pb2.GATE_MODE_OFF
        response = await self._stub.Search(
            retriever_pb2.SearchRequest(query=query, scopes=[_scope(turn)], top_k=top_k, gate=gate)
        )
        return Retrieved(
            evidence=tuple(_evidence(hit) for hit in response.hits),
            confidence=_CONFIDENCE.get(response.confidence, ""),
            held_back=response.held_back,
            degradations=tuple(response.degradations),
            timings=tuple(response.timings),
        )

    async def document(self, turn: TurnInput, document_id: str, max_chars: int) -> DocumentText:
        """See Knowledge."""
        response = await self._stub.GetDocument(
            retriever_pb2.GetDocumentRequest(
                collection_id=turn.collection_id,
                document_id=document_id,
                include_text=max_chars > 0,
                max_text_chars=max_chars,
            )
        )
        _check(turn, response.document)
        return DocumentText(
            collection_id=turn.collection_id,
            document_id=document_id,
            title=response.document.title,
            text=response.text,
            total_chars=response.document.text_chars,
        )

    async def scope_chars(self, turn: TurnInput) -> int:
        """See Knowledge. Sizes are remembered for a minute: they only serve a comparison."""
        asked = _scope(turn).SerializeToString(deterministic=True)
        key = (context.current_caller().tenant_id, asked)
        known = self._sizes.get(key)
        if known is not None and known.until > time.monotonic():
            return known.chars
        response = await self._stub.ListDocuments(
            retriever_pb2.ListDocumentsRequest(
                collection_id=turn.collection_id, page_size=_COUNTED_DOCUMENTS
            )
        )
        chars = 0
        if not response.next_page_token:
            chars = sum(
                one.text_chars
                for one in response.documents
                if scope.holds(turn, one.document_id, one.metadata)
            )
        self._sizes[key] = _Size(chars, time.monotonic() + _SIZE_CACHE_S)
        while len(self._sizes) > _SIZE_CACHE_ENTRIES:
            self._sizes.popitem(last=False)
        return chars

    async def open(
        self, turn: TurnInput, document_id: str, chunk_id: str, max_chars: int
    ) -> pb.Evidence:
        """See Knowledge."""
        span = retriever_pb2.PART_SPAN_SECTION if chunk_id else retriever_pb2.PART_SPAN_DOCUMENT
        response = await self._stub.OpenDocumentPart(
            retriever_pb2.OpenDocumentPartRequest(
                collection_id=turn.collection_id,
                document_id=document_id,
                chunk_id=chunk_id,
                span=span,
                max_chars=max_chars,
            )
        )
        _check(turn, response.document)
        first = response.chunks[0] if response.chunks else retriever_pb2.Chunk()
        return pb.Evidence(
            source=pb.EVIDENCE_SOURCE_TOOL,
            collection_id=turn.collection_id,
            document_id=document_id,
            chunk_id=first.chunk_id,
            title=response.document.title,
            section=" > ".join(first.section_path),
            text=response.text[:_PASSAGE_CHARS],
        )


def _check(turn: TurnInput, document: retriever_pb2.Document) -> None:
    """NOT_FOUND outside the scope, as for a document that does not exist."""
    if not scope.holds(turn, document.document_id, document.metadata):
        raise errors.not_found("document", document.document_id)


def _scope(turn: TurnInput) -> retriever_pb2.SearchScope:
    conditions = [
        retriever_pb2.MetadataCondition(key=key, op=retriever_pb2.FILTER_OP_EQ, values=[value])
        for key, value in sorted(turn.metadata_equals.items())
    ]
    return retriever_pb2.SearchScope(
        collection_id=turn.collection_id,
        document_ids=turn.document_ids,
        filter=retriever_pb2.MetadataFilter(all=conditions),
    )


def _evidence(hit: retriever_pb2.Hit) -> pb.Evidence:
    legs = [
        pb.LegScore(leg=_LEGS.get(leg.leg, ""), rank=leg.rank, score=leg.score)
        for leg in hit.explanation.legs
    ]
    if hit.explanation.HasField("rerank_score"):
        legs.append(pb.LegScore(leg="rerank", score=hit.explanation.rerank_score))
    return pb.Evidence(
        source=pb.EVIDENCE_SOURCE_RETRIEVAL,
        collection_id=hit.collection_id,
        document_id=hit.document_id,
        chunk_id=hit.chunk.chunk_id,
        title=hit.title,
        section=" > ".join(hit.chunk.section_path),
        text=hit.chunk.text[:_PASSAGE_CHARS],
        score=hit.score,
        legs=legs,
    )
