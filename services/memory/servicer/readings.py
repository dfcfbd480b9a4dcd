"""RPCs of readings."""

from __future__ import annotations

from datetime import datetime

import grpc.aio

from nianlun.memory.v1 import memory_pb2 as pb
from services.common import errors, validate
from services.common.db import Connection
from services.memory import convert, readings
from services.memory.erase import Eraser
from services.memory.servicer import base
from services.memory.store import episodes as vector_store
from services.memory.store import readings as store
from services.memory.store import turns as turn_store

Context = grpc.aio.ServicerContext[object, object]


class ReadingRpcs(base.Rpcs):
    """RecordReading, ListReadings, FindSimilarReadings, RecordReadingFeedback, DeleteReading."""

    async def RecordReading(
        self, request: pb.RecordReadingRequest, context: Context
    ) -> pb.RecordReadingResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        document_id = validate.ident("document_id", request.document_id)
        metadata = validate.value_map("metadata", request.metadata, 32)
        given = validate.text("title", request.title, 500, 0).strip()
        title = readings.title_of(given, metadata)
        summary = validate.text("summary", request.summary, 8_000, 0).strip()
        read_at = self.event_time("read_time", base.optional(request, "read_time"))

        async def run(conn: Connection) -> pb.RecordReadingResponse:
            await turn_store.ensure_user(conn, user_id)
            old = await store.get(conn, user_id, document_id)
            first = await store.upsert(
                conn, user_id, document_id, title, summary, dict(metadata), read_at
            )
            new = await store.get(conn, user_id, document_id)
            assert new is not None
            if old is None or (old.title, old.summary) != (new.title, new.summary):
                await vector_store.drop_vectors(conn, user_id, "reading", new.reading_id)
                await self.deps.enqueue_embed(conn, tenant_id, user_id)
            return pb.RecordReadingResponse(reading=convert.reading(new), first_time=first)

        return await self.write(request, pb.RecordReadingResponse, run, user_id)

    async def ListReadings(
        self, request: pb.ListReadingsRequest, context: Context
    ) -> pb.ListReadingsResponse:
        """See the contract."""
        page = validate.page(request, max_size=base.MAX_PAGE, default=base.DEFAULT_PAGE)
        after = None
        if page.cursor:
            moment, document_id = (str(c) for c in page.cursor)
            after = (datetime.fromisoformat(moment), document_id)
        async with self.deps.db.tenant() as conn:
            rows = await store.page(conn, base.user(request.user_id), after, page.size + 1)
        token = ""
        if len(rows) > page.size:
            rows = rows[: page.size]
            token = page.next_token(rows[-1].read_at.isoformat(), rows[-1].document_id)
        return pb.ListReadingsResponse(
            readings=[convert.reading(r) for r in rows], next_page_token=token
        )

    async def FindSimilarReadings(
        self, request: pb.FindSimilarReadingsRequest, context: Context
    ) -> pb.FindSimilarReadingsResponse:
        """See the contract."""
        user_id = base.user(request.user_id)
        document_id = base.optional_ident("document_id", request.document_id)
        text = validate.text("text", request.text, 8_000, 0).strip()
        top_k = base.number_or("top_k", request.top_k, 3, 1, 20)
        if not text:
            text = await self._text_of(user_id, document_id)
        question, degradations = await self.query_vector(text, "readings")
        async with self.deps.db.tenant() as conn:
            shelf = await readings.read(conn, user_id, question, document_id)
            earlier = await store.count_others(conn, user_id, document_id)
        hits = await readings.similar(shelf, text, question, top_k)
        degradations += convert.not_searched(shelf.beyond, "readings")
        degradations += base.pending("readings", shelf.pending)
        return pb.FindSimilarReadingsResponse(
            hits=[convert.reading_hit(h) for h in hits],
            earlier_readings=earlier,
            degradations=degradations,
        )

    async def _text_of(self, user_id: str, document_id: str) -> str:
        """The stored text of a document; INVALID_ARGUMENT when there is nothing to compare with."""
        found = None
        if document_id:
            async with self.deps.db.tenant() as conn:
                found = await store.get(conn, user_id, document_id)
        if found is None:
            raise errors.invalid_argument(
                "text", "is required when document_id is empty or not recorded"
            )
        return f"{found.title}\n{found.summary}"

    async def RecordReadingFeedback(
        self, request: pb.RecordReadingFeedbackRequest, context: Context
    ) -> pb.RecordReadingFeedbackResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        user_id = base.user(request.user_id)
        document_id = validate.ident("document_id", request.document_id)
        verdict = validate.one_of_enum("verdict", request.verdict, pb.ReadingVerdict)
        factor = readings.USEFUL if verdict == pb.READING_VERDICT_USEFUL else readings.NOT_USEFUL

        async def run(conn: Connection) -> pb.RecordReadingFeedbackResponse:
            if not await store.reweigh(conn, user_id, document_id, factor):
                raise errors.not_found("reading", document_id)
            found = await store.get(conn, user_id, document_id)
            assert found is not None
            return pb.RecordReadingFeedbackResponse(reading=convert.reading(found))

        return await self.write(request, pb.RecordReadingFeedbackResponse, run, user_id)

    async def DeleteReading(
        self, request: pb.DeleteReadingRequest, context: Context
    ) -> pb.DeleteReadingResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        document_id = validate.ident("document_id", request.document_id)

        async def run(conn: Connection) -> pb.DeleteReadingResponse:
            await turn_store.lock_user(conn, user_id)
            receipt = await Eraser(self.deps).reading(conn, tenant_id, user_id, document_id)
            return pb.DeleteReadingResponse(receipt=convert.receipt(receipt))

        return await self.write(request, pb.DeleteReadingResponse, run, "")
