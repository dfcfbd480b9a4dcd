"""RPCs of turns, sessions and LoadMemory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import grpc.aio

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as pb
from services.common import errors, validate
from services.common.db import Connection
from services.common.idempotency import fingerprint
from services.memory import append, convert, load, recall
from services.memory.append import Incoming
from services.memory.domain import Layer, Message, Turn
from services.memory.erase import Eraser
from services.memory.servicer import base
from services.memory.store import sessions as session_store
from services.memory.store import turns as store
from services.memory.store import usage as usage_store
from services.memory.threads import by_size
from services.memory.tokens import position_of, position_token
from services.search.bm25 import RamIndex

Context = grpc.aio.ServicerContext[object, object]
_MAX_TEXT: Final = 32_000
_MAX_TURN: Final = 128_000
_MAX_JUDGED: Final = 16_000


class TurnRpcs(base.Rpcs):
    """AppendTurn, ListTurns, SearchTurns, DeleteTurn, LoadMemory, positions and sessions."""

    async def AppendTurn(
        self, request: pb.AppendTurnRequest, context: Context
    ) -> pb.AppendTurnResponse:
        """See the contract."""
        tenant_id = base.tenant()
        changes: list[common_pb2.Sanitization] = []
        turn = self._incoming(request, changes)
        receipt, prepared = await append.append(self.deps, tenant_id, turn)
        for number in prepared.redacted:
            field = f"messages[{number}].text"
            changes.append(common_pb2.Sanitization(field=field, changes=["pii_redacted"]))
        return pb.AppendTurnResponse(
            turn_id=receipt.turn_id,
            sequence=receipt.sequence,
            position=position_token(tenant_id, turn.user_id, receipt.position),
            job_id=receipt.job_id,
            event_time=convert.stamp(receipt.event_time),
            sanitizations=changes,
            flags=prepared.flags,
        )

    def _incoming(
        self, request: pb.AppendTurnRequest, changes: list[common_pb2.Sanitization]
    ) -> Incoming:
        validate.count("messages", request.messages, 64, 1)
        messages = []
        for number, message in enumerate(request.messages):
            field = f"messages[{number}]"
            role = validate.one_of_enum(f"{field}.role", message.role, pb.Role)
            text = validate.text(f"{field}.text", message.text, _MAX_TEXT, 1, changes)
            speaker = validate.text(f"{field}.speaker", message.speaker, 128, 0, changes)
            messages.append(Message(convert.ROLES[pb.Role.ValueType(role)], text, speaker))
        if sum(len(m.text) for m in messages) > _MAX_TURN:
            raise errors.invalid_argument(
                "messages", f"must have at most {_MAX_TURN} characters together"
            )
        return Incoming(
            rpc=request.DESCRIPTOR.full_name,
            request_id=validate.request_id(request.request_id),
            request_hash=fingerprint(request),
            user_id=base.user(request.user_id),
            session_id=base.session(request.session_id),
            messages=messages,
            event_time=self.event_time("event_time", base.optional(request, "event_time")),
            time_zone=base.time_zone("time_zone", request.time_zone, "UTC"),
            metadata=validate.value_map("metadata", request.metadata, 32),
        )

    async def ListTurns(
        self, request: pb.ListTurnsRequest, context: Context
    ) -> pb.ListTurnsResponse:
        """See the contract."""
        page = validate.page(request, max_size=base.MAX_PAGE, default=base.DEFAULT_PAGE)
        after = _time_cursor(page)
        async with self.deps.db.tenant() as conn:
            turns = await store.page(
                conn,
                base.user(request.user_id),
                base.optional_ident("session_id", request.session_id),
                request.undigested_only,
                (after[0], int(after[1])) if after else None,
                page.size + 1,
            )
        token = ""
        if len(turns) > page.size:
            turns = turns[: page.size]
            token = page.next_token(turns[-1].event_time.isoformat(), turns[-1].position)
        return pb.ListTurnsResponse(turns=[convert.turn(t) for t in turns], next_page_token=token)

    async def SearchTurns(
        self, request: pb.SearchTurnsRequest, context: Context
    ) -> pb.SearchTurnsResponse:
        """See the contract."""
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        query = validate.text("query", request.query, _MAX_TEXT)
        top_k = base.number_or("top_k", request.top_k, 10, 1, 100)
        scope = base.scope_of(request)
        question, degradations = await self.query_vector(query, "turns")
        async with self.deps.db.tenant(tenant_id) as conn:
            state = await store.state(conn, user_id)
            version = (state.position, state.index_version)
            settings = await usage_store.settings(conn)
            unbuilt = await self.deps.read_index(
                conn, tenant_id, user_id, "turn", version, question
            )
        index = await self.deps.built(unbuilt)
        degradations += convert.not_searched(index.beyond, "turns")
        if question is not None and self.deps.settings.embed_turns:
            degradations += base.pending("turns", index.pending)
        now = self.deps.now()
        found = recall.search(
            query, question, index, recall.turns_recipe(top_k), scope, now, "UTC", settings.gate
        )
        ranked = (found.hits + found.below)[:top_k]
        turns = [index.turns[r.item_id] for r in ranked]
        size = len(query) + _judged(turns)
        best = await by_size(size, lambda: [_best_message(query, t) for t in turns])
        hits = [
            pb.TurnHit(
                turn=convert.turn(turn), message_index=n, score=r.score, legs=convert.legs(r)
            )
            for r, turn, n in zip(ranked, turns, best, strict=True)
        ]
        return pb.SearchTurnsResponse(
            hits=hits, confidence=found.confidence, degradations=degradations
        )

    async def DeleteTurn(
        self, request: pb.DeleteTurnRequest, context: Context
    ) -> pb.DeleteTurnResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        turn_id = base.uuid_of("turn_id", request.turn_id, "turn")

        async def run(conn: Connection) -> pb.DeleteTurnResponse:
            receipt = await Eraser(self.deps).turn(conn, tenant_id, user_id, turn_id)
            return pb.DeleteTurnResponse(receipt=convert.receipt(receipt))

        return await self.write(request, pb.DeleteTurnResponse, run, "")

    async def LoadMemory(
        self, request: pb.LoadMemoryRequest, context: Context
    ) -> pb.LoadMemoryResponse:
        """See the contract."""
        tenant_id = base.tenant()
        query = self._load_query(request, tenant_id)
        found = await load.load(self.deps, tenant_id, query)
        return convert.loaded(found, tenant_id, query.user_id, self.deps.now())

    def _load_query(self, request: pb.LoadMemoryRequest, tenant_id: str) -> load.LoadQuery:
        user_id = base.user(request.user_id)
        session_id = base.optional_ident("session_id", request.session_id)
        if request.exclude_session and not session_id:
            raise errors.invalid_argument("exclude_session", "needs session_id")
        layers = _layers(request)
        if not layers:
            raise errors.invalid_argument("layers", "must leave at least one layer on")
        return load.LoadQuery(
            user_id=user_id,
            session_id=session_id,
            query=validate.text("query", request.query, _MAX_TEXT, 0),
            budget=base.number_or("budget_tokens", request.budget_tokens, 1_500, 64, 32_000),
            at_least=(
                position_of("at_least", request.at_least, tenant_id, user_id)
                if request.at_least
                else 0
            ),
            as_of=self.past("as_of", base.optional(request, "as_of")) or self.deps.now(),
            layers=layers,
            exclude_session=request.exclude_session,
            max_episodes=base.number_or("max_episodes", request.max_episodes, 3, 1, 10),
            time_zone=base.time_zone("time_zone", request.time_zone, ""),
            current_document_id=base.optional_ident(
                "current_document_id", request.current_document_id
            ),
        )

    async def GetPosition(
        self, request: pb.GetPositionRequest, context: Context
    ) -> pb.GetPositionResponse:
        """See the contract."""
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        async with self.deps.db.tenant(tenant_id) as conn:
            position, fresh = await store.position(conn, user_id)
        return pb.GetPositionResponse(
            position=position_token(tenant_id, user_id, position), undigested_turns=fresh
        )

    async def EndSession(
        self, request: pb.EndSessionRequest, context: Context
    ) -> pb.EndSessionResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        session_id = base.session(request.session_id)

        async def run(conn: Connection) -> pb.EndSessionResponse:
            if not await session_store.end(conn, user_id, session_id):
                raise errors.not_found("session", session_id)
            job_id = await self.deps.enqueue_session(
                conn, "end_session", tenant_id, user_id, session_id
            )
            return pb.EndSessionResponse(job=await base.job_of(conn, job_id))

        return await self.write(request, pb.EndSessionResponse, run, user_id)

    async def ListSessions(
        self, request: pb.ListSessionsRequest, context: Context
    ) -> pb.ListSessionsResponse:
        """See the contract."""
        page = validate.page(request, max_size=base.MAX_PAGE, default=base.DEFAULT_PAGE)
        after = _time_cursor(page)
        async with self.deps.db.tenant() as conn:
            rows = await session_store.page(
                conn,
                base.user(request.user_id),
                (after[0], str(after[1])) if after else None,
                page.size + 1,
            )
        token = ""
        if len(rows) > page.size:
            rows = rows[: page.size]
            token = page.next_token(rows[-1].last_time.isoformat(), rows[-1].session_id)
        return pb.ListSessionsResponse(
            sessions=[convert.session(r) for r in rows], next_page_token=token
        )

    async def ListUsers(
        self, request: pb.ListUsersRequest, context: Context
    ) -> pb.ListUsersResponse:
        """See the contract."""
        page = validate.page(request, max_size=base.MAX_PAGE, default=base.DEFAULT_PAGE)
        after = str(page.cursor[0]) if page.cursor else ""
        async with self.deps.db.tenant() as conn:
            found = await store.users(conn, after, page.size + 1)
        token = page.next_token(found[page.size - 1]) if len(found) > page.size else ""
        return pb.ListUsersResponse(user_ids=found[: page.size], next_page_token=token)


def _layers(request: pb.LoadMemoryRequest) -> frozenset[Layer]:
    switches = request.layers
    on = set()
    for layer in Layer:
        wanted = (
            getattr(switches, layer.value)
            if switches.HasField(layer.value)
            else layer is not Layer.READINGS
        )
        if wanted:
            on.add(layer)
    return frozenset(on)


def _time_cursor(page: validate.Page) -> tuple[datetime, str | int | float] | None:
    if not page.cursor:
        return None
    moment, other = page.cursor
    return datetime.fromisoformat(str(moment)), other


def _judged(turns: Sequence[Turn]) -> int:
    """Characters that `_best_message` looks at."""
    return sum(min(len(t.text), _MAX_JUDGED) for t in turns if len(t.messages) > 1)


def _best_message(query: str, turn: Turn) -> int:
    """Index of the message that shares most with the query, by the beginning of each."""
    if len(turn.messages) < 2:
        return 0
    whole = len(turn.text) <= _MAX_JUDGED
    share = _MAX_JUDGED if whole else _MAX_JUDGED // len(turn.messages)
    index = RamIndex.of_texts((str(n), m.text[:share]) for n, m in enumerate(turn.messages))
    ranked = index.leg(query, 1).ranked()
    return int(ranked[0]) if ranked else 0
