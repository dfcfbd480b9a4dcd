"""RetrieverService: proto in, domain call, proto out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import grpc.aio
from google.protobuf.message import Message

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from nianlun.retriever.v1 import retriever_pb2_grpc
from services.common import errors, validate
from services.common.db import Connection, Database
from services.common.idempotency import replay_or_run
from services.common.jobs.rpc import JobRpcs
from services.common.pages import page
from services.retriever import convert, hit_context, parse
from services.retriever.calibrations import Calibrations
from services.retriever.domain import Scope, StoredChunk
from services.retriever.library import Library
from services.retriever.reranking import Note
from services.retriever.searcher import Searcher
from services.retriever.store import collections, documents
from services.search.recipes import RECIPES

SCHEMA: Final = "retriever"
_WHOLE_DOCUMENT: Final = 1_000_000
_Context = grpc.aio.ServicerContext[object, object]
M = TypeVar("M", bound=Message)


class RetrieverServicer(retriever_pb2_grpc.RetrieverServiceServicer):
    """All RPCs. Handlers raise DomainErrors; an interceptor turns them into statuses."""

    def __init__(
        self,
        db: Database,
        library: Library,
        searcher: Searcher,
        calibrations: Calibrations,
        jobs: JobRpcs,
    ) -> None:
        self._db = db
        self._library = library
        self._searcher = searcher
        self._calibrations = calibrations
        self._jobs = jobs

    async def _once(
        self, request: Message, answer: type[M], run: Callable[[Connection], Awaitable[M]]
    ) -> M:
        """Runs a mutation in a transaction of its own, once for a request id."""
        async with self._db.tenant() as conn:
            return await replay_or_run(conn, SCHEMA, request, answer, lambda: run(conn))

    # ---- collections ---------------------------------------------------------------------------

    async def CreateCollection(
        self, request: pb.CreateCollectionRequest, context: _Context
    ) -> pb.CreateCollectionResponse:
        validate.request_id(request.request_id)
        collection_id = parse.collection_id(request.collection_id)
        changes: list[common_pb2.Sanitization] = []
        name = validate.text("display_name", request.display_name, 200, 0, changes)
        description = validate.text("description", request.description, 2_000, 0, changes)
        recipe = parse.recipe_name(request.default_recipe, "default_recipe")
        model = validate.text("model_id", request.model_id, 256, 0)
        model = await self._library.model(model)

        async def run(conn: Connection) -> pb.CreateCollectionResponse:
            made = await self._library.create(conn, collection_id, name, description, recipe, model)
            return pb.CreateCollectionResponse(
                collection=convert.collection(made), sanitizations=changes
            )

        return await self._once(request, pb.CreateCollectionResponse, run)

    async def GetCollection(
        self, request: pb.GetCollectionRequest, context: _Context
    ) -> pb.GetCollectionResponse:
        collection_id = parse.collection_id(request.collection_id)
        async with self._db.tenant() as conn:
            found = await self._library.collection(conn, collection_id)
        return pb.GetCollectionResponse(collection=convert.collection(found))

    async def ListCollections(
        self, request: pb.ListCollectionsRequest, context: _Context
    ) -> pb.ListCollectionsResponse:
        wanted = page(request, max_size=200, default=50)
        after = str(wanted.cursor[0]) if wanted.cursor else ""
        async with self._db.tenant() as conn:
            found = await collections.page(conn, after, wanted.size + 1)
        shown = found[: wanted.size]
        return pb.ListCollectionsResponse(
            collections=[convert.collection(c) for c in shown],
            next_page_token=wanted.next_token(shown[-1].collection_id)
            if len(found) > wanted.size
            else "",
        )

    async def UpdateCollection(
        self, request: pb.UpdateCollectionRequest, context: _Context
    ) -> pb.UpdateCollectionResponse:
        validate.request_id(request.request_id)
        collection_id = parse.collection_id(request.collection_id)
        changes: list[common_pb2.Sanitization] = []
        name = description = recipe = None
        if request.HasField("display_name"):
            name = validate.text("display_name", request.display_name, 200, 0, changes)
        if request.HasField("description"):
            description = validate.text("description", request.description, 2_000, 0, changes)
        if request.HasField("default_recipe"):
            recipe = parse.recipe_name(request.default_recipe, "default_recipe")

        async def run(conn: Connection) -> pb.UpdateCollectionResponse:
            changed = await self._library.update(
                conn, collection_id, request.etag, name, description, recipe
            )
            return pb.UpdateCollectionResponse(
                collection=convert.collection(changed), sanitizations=changes
            )

        return await self._once(request, pb.UpdateCollectionResponse, run)

    async def DeleteCollection(
        self, request: pb.DeleteCollectionRequest, context: _Context
    ) -> pb.DeleteCollectionResponse:
        validate.request_id(request.request_id)
        collection_id = parse.collection_id(request.collection_id)

        async def run(conn: Connection) -> pb.DeleteCollectionResponse:
            gone = await self._library.delete_collection(conn, collection_id)
            return pb.DeleteCollectionResponse(
                documents_deleted=gone.document_count, chunks_deleted=gone.chunk_count
            )

        response = await self._once(request, pb.DeleteCollectionResponse, run)
        self._searcher.forget(collection_id)
        return response

    # ---- documents -----------------------------------------------------------------------------

    async def UpsertDocuments(
        self, request: pb.UpsertDocumentsRequest, context: _Context
    ) -> pb.UpsertDocumentsResponse:
        validate.request_id(request.request_id)
        collection_id = parse.collection_id(request.collection_id)
        uploads = parse.uploads(request)

        async def run(conn: Connection) -> pb.UpsertDocumentsResponse:
            job = await self._library.upsert(conn, collection_id, uploads)
            return pb.UpsertDocumentsResponse(job=job)

        return await self._once(request, pb.UpsertDocumentsResponse, run)

    async def GetDocument(
        self, request: pb.GetDocumentRequest, context: _Context
    ) -> pb.GetDocumentResponse:
        collection_id = parse.collection_id(request.collection_id)
        document_id = validate.ident("document_id", request.document_id)
        validate.number("max_text_chars", request.max_text_chars, 0, 1_000_000)
        validate.number("text_offset", request.text_offset, 0, 2**31)
        limit = request.max_text_chars or 200_000
        text = ""
        async with self._db.tenant() as conn:
            found = await self._library.document(conn, collection_id, document_id)
            if request.include_text:
                text = await documents.text(
                    conn, collection_id, document_id, request.text_offset, limit
                )
        return pb.GetDocumentResponse(
            document=convert.document(found),
            text=text,
            text_truncated=request.include_text
            and request.text_offset + len(text) < found.text_chars,
        )

    async def ListDocuments(
        self, request: pb.ListDocumentsRequest, context: _Context
    ) -> pb.ListDocumentsResponse:
        wanted = page(request, max_size=500, default=50)
        scope = Scope(
            parse.collection_id(request.collection_id),
            conditions=parse.conditions(request.filter, "filter"),
        )
        states = [
            convert.STATE_NAMES[validate.one_of_enum("states", s, pb.DocumentState)]
            for s in request.states
        ]
        after = str(wanted.cursor[0]) if wanted.cursor else ""
        async with self._db.tenant() as conn:
            await self._library.collection(conn, scope.collection_id)
            found = await documents.page(conn, scope, states, after, wanted.size + 1)
        shown = found[: wanted.size]
        return pb.ListDocumentsResponse(
            documents=[convert.document(d) for d in shown],
            next_page_token=wanted.next_token(shown[-1].document_id)
            if len(found) > wanted.size
            else "",
        )

    async def DeleteDocuments(
        self, request: pb.DeleteDocumentsRequest, context: _Context
    ) -> pb.DeleteDocumentsResponse:
        validate.request_id(request.request_id)
        collection_id = parse.collection_id(request.collection_id)
        validate.count("document_ids", request.document_ids, 1_000, 1)
        ids = [validate.ident(f"document_ids[{n}]", i) for n, i in enumerate(request.document_ids)]

        async def run(conn: Connection) -> pb.DeleteDocumentsResponse:
            removed, chunks, missing = await self._library.delete(
                conn,
                collection_id,
                list(dict.fromkeys(ids)),
                allow_missing=request.allow_missing,
            )
            return pb.DeleteDocumentsResponse(
                documents_deleted=removed, chunks_deleted=chunks, missing_ids=missing
            )

        response = await self._once(request, pb.DeleteDocumentsResponse, run)
        self._searcher.forget(collection_id, ids)
        return response

    async def OpenDocumentPart(
        self, request: pb.OpenDocumentPartRequest, context: _Context
    ) -> pb.OpenDocumentPartResponse:
        collection_id = parse.collection_id(request.collection_id)
        document_id = validate.ident("document_id", request.document_id)
        chunk_id = parse.chunk_id(request.chunk_id)
        for field in ("before", "after"):
            validate.number(field, getattr(request, field), 0, 50)
        validate.number("ordinal", request.ordinal, 0, 2**31)
        validate.number("max_chars", request.max_chars, 0, 200_000)
        before, after = request.before, request.after
        if request.span == pb.PART_SPAN_DOCUMENT:
            before, after = 0, _WHOLE_DOCUMENT
        async with self._db.tenant() as conn:
            found = await self._library.document(conn, collection_id, document_id)
            anchor, parts = await self._library.part(
                conn, collection_id, document_id, chunk_id, request.ordinal, before, after
            )
            if request.span == pb.PART_SPAN_SECTION:
                parts = await self._library.section(conn, collection_id, anchor)
        shown, cut = _fit(parts, anchor, request.max_chars or 20_000)
        return pb.OpenDocumentPartResponse(
            document=convert.document(found),
            chunks=[convert.chunk(c) for c in shown],
            text=hit_context.joined(shown),
            truncated=cut,
        )

    # ---- search --------------------------------------------------------------------------------

    async def Search(self, request: pb.SearchRequest, context: _Context) -> pb.SearchResponse:
        changes: list[common_pb2.Sanitization] = []
        # Without a recipe it is the collection's; what the request says is checked before any read.
        spec, cut = parse.search(request, request.recipe, changes)
        found = await self._searcher.collections(spec.scopes)
        default = found[spec.scopes[0].collection_id].default_recipe
        if not request.recipe and default != spec.recipe.name:
            spec, _ = parse.search(request, default, [])
        outcome = await self._searcher.search(spec, found)
        with outcome.watch.measure("fetch"):
            places, around = await hit_context.load(self._db, outcome)
        response = convert.response(outcome, places, around)
        if cut:
            note = Note("TRUNCATED", "The query was cut to 32,768 characters.", {"field": "query"})
            response.degradations.append(convert.degradation(note))
        response.sanitizations.extend(changes)
        return response

    async def ListRecipes(
        self, request: pb.ListRecipesRequest, context: _Context
    ) -> pb.ListRecipesResponse:
        return pb.ListRecipesResponse(recipes=[convert.recipe(RECIPES[n]) for n in sorted(RECIPES)])

    # ---- embeddings, calibration ---------------------------------------------------------------

    async def StartReembed(
        self, request: pb.StartReembedRequest, context: _Context
    ) -> pb.StartReembedResponse:
        validate.request_id(request.request_id)
        collection_id = parse.collection_id(request.collection_id)
        model = await self._library.model(validate.text("model_id", request.model_id, 256))

        async def run(conn: Connection) -> pb.StartReembedResponse:
            job = await self._library.reembed(
                conn, collection_id, model, hold_switch=request.hold_switch
            )
            return pb.StartReembedResponse(job=job)

        return await self._once(request, pb.StartReembedResponse, run)

    async def SwitchEmbedding(
        self, request: pb.SwitchEmbeddingRequest, context: _Context
    ) -> pb.SwitchEmbeddingResponse:
        validate.request_id(request.request_id)
        collection_id = parse.collection_id(request.collection_id)
        model = validate.text("model_id", request.model_id, 256, 0)

        async def run(conn: Connection) -> pb.SwitchEmbeddingResponse:
            changed = await self._library.switch(
                conn, collection_id, model, drop_previous=request.drop_previous
            )
            return pb.SwitchEmbeddingResponse(collection=convert.collection(changed))

        return await self._once(request, pb.SwitchEmbeddingResponse, run)

    async def BackfillEmbeddings(
        self, request: pb.BackfillEmbeddingsRequest, context: _Context
    ) -> pb.BackfillEmbeddingsResponse:
        validate.request_id(request.request_id)
        collection_id = parse.collection_id(request.collection_id)

        async def run(conn: Connection) -> pb.BackfillEmbeddingsResponse:
            job = await self._library.backfill(conn, collection_id)
            return pb.BackfillEmbeddingsResponse(job=job)

        return await self._once(request, pb.BackfillEmbeddingsResponse, run)

    async def Calibrate(
        self, request: pb.CalibrateRequest, context: _Context
    ) -> pb.CalibrateResponse:
        validate.request_id(request.request_id)
        collection_id = parse.collection_id(request.collection_id)
        pairs = parse.pairs(request)

        async def run(conn: Connection) -> pb.CalibrateResponse:
            job = await self._library.calibrate(conn, collection_id, pairs)
            return pb.CalibrateResponse(job=job)

        return await self._once(request, pb.CalibrateResponse, run)

    async def GetCalibration(
        self, request: pb.GetCalibrationRequest, context: _Context
    ) -> pb.GetCalibrationResponse:
        named = validate.text("model_id", request.model_id, 256, 0)
        model = named or await self._library.model("")
        found = (await self._calibrations.of([model]))[model]
        if not found.fitted:
            raise errors.not_found("calibration", model)
        return pb.GetCalibrationResponse(calibration=convert.calibration(found))

    # ---- jobs ----------------------------------------------------------------------------------

    async def GetJob(self, request: pb.GetJobRequest, context: _Context) -> pb.GetJobResponse:
        return pb.GetJobResponse(job=await self._jobs.get(request))

    async def ListJobs(self, request: pb.ListJobsRequest, context: _Context) -> pb.ListJobsResponse:
        jobs, token = await self._jobs.list(request)
        return pb.ListJobsResponse(jobs=jobs, next_page_token=token)

    async def CancelJob(
        self, request: pb.CancelJobRequest, context: _Context
    ) -> pb.CancelJobResponse:
        return await self._jobs.cancel(request, pb.CancelJobResponse, self._library.cancelled)

    async def ReplayJob(
        self, request: pb.ReplayJobRequest, context: _Context
    ) -> pb.ReplayJobResponse:
        return await self._jobs.replay(request, pb.ReplayJobResponse)

    async def WatchJob(
        self, request: pb.WatchJobRequest, context: _Context
    ) -> AsyncIterator[pb.WatchJobResponse]:
        async for job in self._jobs.watch(request):
            yield pb.WatchJobResponse(job=job)


def _fit(
    parts: list[StoredChunk], anchor: StoredChunk, limit: int
) -> tuple[list[StoredChunk], bool]:
    """The parts nearest to the anchor that fit, in order, and whether any were left out."""
    chosen: list[StoredChunk] = []
    size = 0
    for part in sorted(parts, key=lambda p: (abs(p.ordinal - anchor.ordinal), p.ordinal)):
        if chosen and size + len(part.text) > limit:
            return sorted(chosen, key=lambda p: p.ordinal), True
        chosen.append(part)
        size += len(part.text)
    return sorted(chosen, key=lambda p: p.ordinal), False
