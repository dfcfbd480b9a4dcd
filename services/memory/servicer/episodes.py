"""RPCs of episode notes and summaries."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import grpc.aio

from nianlun.memory.v1 import memory_pb2 as pb
from services.common import errors, validate
from services.common.db import Connection
from services.memory import convert, recall, rekey, safety
from services.memory.domain import Episode
from services.memory.erase import Eraser
from services.memory.extraction.text import language_of
from services.memory.keys import note_key
from services.memory.servicer import base
from services.memory.store import episodes as store
from services.memory.store import sessions as session_store
from services.memory.store import summaries as summary_store
from services.memory.store import turns as turn_store
from services.memory.store import usage as usage_store
from services.search import TOK_VERSION, tokenize

Context = grpc.aio.ServicerContext[object, object]
_MAX_TEXT: Final = 32_000


class EpisodeRpcs(base.Rpcs):
    """SearchEpisodes, ListEpisodes, CorrectEpisode, DeleteEpisode, GetSummary, RefreshSummary."""

    async def SearchEpisodes(
        self, request: pb.SearchEpisodesRequest, context: Context
    ) -> pb.SearchEpisodesResponse:
        """See the contract."""
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        query = validate.text("query", request.query, _MAX_TEXT)
        top_k = base.number_or("top_k", request.top_k, 3, 1, 50)
        scope = base.scope_of(request)
        question, degradations = await self.query_vector(query, "episodes")
        async with self.deps.db.tenant(tenant_id) as conn:
            state = await turn_store.state(conn, user_id)
            settings = await usage_store.settings(conn)
            unbuilt = await self.deps.read_index(
                conn, tenant_id, user_id, "episode", (state.index_version,), question
            )
        index = await self.deps.built(unbuilt)
        if question is not None:
            degradations += base.pending("episodes", index.pending)
        degradations += convert.not_searched(index.beyond, "episodes")
        now = self.deps.now()
        found = recall.search(
            query, question, index, recall.notes_recipe(settings, top_k), scope, now,
            state.time_zone, settings.gate,
        )  # fmt: skip
        ranked = found.hits + found.below if request.ungated else found.hits
        return pb.SearchEpisodesResponse(
            hits=[convert.episode_hit(index.episodes[r.item_id], r, now) for r in ranked[:top_k]],
            confidence=found.confidence,
            held_back=0 if request.ungated else len(found.below),
            degradations=degradations,
        )

    async def ListEpisodes(
        self, request: pb.ListEpisodesRequest, context: Context
    ) -> pb.ListEpisodesResponse:
        """See the contract."""
        page = validate.page(request, max_size=base.MAX_PAGE, default=base.DEFAULT_PAGE)
        after = None
        if page.cursor:
            moment, episode_id = (str(c) for c in page.cursor)
            after = (datetime.fromisoformat(moment), episode_id)
        async with self.deps.db.tenant() as conn:
            found = await store.page(
                conn,
                base.user(request.user_id),
                base.optional_ident("session_id", request.session_id),
                after,
                page.size + 1,
            )
        token = ""
        if len(found) > page.size:
            found = found[: page.size]
            token = page.next_token(found[-1].event_time.isoformat(), found[-1].episode_id)
        return pb.ListEpisodesResponse(
            episodes=[convert.episode(e) for e in found], next_page_token=token
        )

    async def CorrectEpisode(
        self, request: pb.CorrectEpisodeRequest, context: Context
    ) -> pb.CorrectEpisodeResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        episode_id = base.uuid_of("episode_id", request.episode_id, "episode")
        note = validate.text("note", request.note, 500).strip()
        if safety.is_injection(note):
            raise errors.invalid_argument("note", "must not be an instruction to the system")

        async def run(conn: Connection) -> pb.CorrectEpisodeResponse:
            await turn_store.ensure_user(conn, user_id)
            old = await _guarded(conn, user_id, episode_id, request.etag)
            language = language_of(note)
            changed = await store.rewrite(conn, user_id, episode_id, note, note_key(note), language)
            if not changed:
                raise errors.failed_precondition("duplicate", "Another note says the same.")
            terms = tokenize(f"{note}\n{old.event_time:%Y-%m-%d}")
            await store.set_terms(conn, user_id, "episode", episode_id, TOK_VERSION, terms)
            await store.drop_vectors(conn, user_id, "episode", episode_id)
            await turn_store.bump_index(conn, user_id)
            await self.deps.enqueue_embed(conn, tenant_id, user_id)
            found = await store.get(conn, user_id, episode_id)
            assert found is not None
            return pb.CorrectEpisodeResponse(episode=convert.episode(found))

        return await self.write(request, pb.CorrectEpisodeResponse, run, user_id)

    async def DeleteEpisode(
        self, request: pb.DeleteEpisodeRequest, context: Context
    ) -> pb.DeleteEpisodeResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        episode_id = base.uuid_of("episode_id", request.episode_id, "episode")

        async def run(conn: Connection) -> pb.DeleteEpisodeResponse:
            await turn_store.lock_user(conn, user_id)
            await _guarded(conn, user_id, episode_id, request.etag)
            receipt = await Eraser(self.deps).episode(conn, tenant_id, user_id, episode_id)
            return pb.DeleteEpisodeResponse(receipt=convert.receipt(receipt))

        return await self.write(request, pb.DeleteEpisodeResponse, run, "")

    async def GetSummary(
        self, request: pb.GetSummaryRequest, context: Context
    ) -> pb.GetSummaryResponse:
        """See the contract."""
        user_id = base.user(request.user_id)
        session_id = base.optional_ident("session_id", request.session_id)
        async with self.deps.db.tenant() as conn:
            found = await summary_store.latest(conn, user_id, session_id)
        if found is None:
            raise errors.not_found("summary", session_id or user_id)
        return pb.GetSummaryResponse(summary=convert.summary(found))

    async def RefreshSummary(
        self, request: pb.RefreshSummaryRequest, context: Context
    ) -> pb.RefreshSummaryResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        session_id = base.optional_ident("session_id", request.session_id)

        async def run(conn: Connection) -> pb.RefreshSummaryResponse:
            if session_id and await session_store.get(conn, user_id, session_id) is None:
                raise errors.not_found("session", session_id)
            job_id = await self.deps.enqueue_session(
                conn, "summary", tenant_id, user_id, session_id
            )
            return pb.RefreshSummaryResponse(job=await base.job_of(conn, job_id))

        return await self.write(request, pb.RefreshSummaryResponse, run, user_id)


async def _guarded(conn: Connection, user_id: str, episode_id: str, etag: str) -> Episode:
    """The note, locked; NOT_FOUND, ETAG_MISMATCH."""
    found = await store.get(conn, user_id, episode_id, lock=True)
    if found is None:
        raise errors.not_found("episode", episode_id)
    if etag and etag != found.etag:
        raise errors.etag_mismatch()
    # What is done to it is done to all that says the same, as earlier versions stored it.
    if await rekey.notes(conn, user_id, keep=episode_id):
        found = await store.get(conn, user_id, episode_id)
    assert found is not None
    return found
