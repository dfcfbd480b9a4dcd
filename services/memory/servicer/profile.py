"""RPCs of profile facts."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import grpc.aio

from nianlun.memory.v1 import memory_pb2 as pb
from services.common import errors, validate
from services.common.db import Connection
from services.memory import convert, profile, rekey, safety
from services.memory.apply import fact_hash, fact_hashes, facts_of, put_fact
from services.memory.domain import Candidate, Fact, FactState, Origin
from services.memory.erase import Eraser
from services.memory.extraction.text import language_of
from services.memory.keys import value_key
from services.memory.servicer import base
from services.memory.store import facts as store
from services.memory.store import turns as turn_store

Context = grpc.aio.ServicerContext[object, object]
_ATTRIBUTE: Final = re.compile(r"\w{1,64}")


class ProfileRpcs(base.Rpcs):
    """ListFacts, PutFact, CorrectFact, RetractFact, GetFactHistory."""

    async def ListFacts(
        self, request: pb.ListFactsRequest, context: Context
    ) -> pb.ListFactsResponse:
        """See the contract."""
        page = validate.page(request, max_size=base.MAX_PAGE, default=base.DEFAULT_PAGE)
        kind = validate.one_of_enum("kind", request.kind, pb.FactKind, unspecified_ok=True)
        after = None
        if page.cursor:
            k, attribute, moment, fact_id = (str(c) for c in page.cursor)
            after = (k, attribute, datetime.fromisoformat(moment), fact_id)
        async with self.deps.db.tenant() as conn:
            facts = await store.listed(
                conn,
                base.user(request.user_id),
                convert.KINDS[pb.FactKind.ValueType(kind)].value if kind else "",
                profile.stored_names(_attribute(request.attribute)) if request.attribute else (),
                self.past("as_of", base.optional(request, "as_of")) or self.deps.now(),
                self.past("known_at", base.optional(request, "known_at")),
                after,
                page.size + 1,
            )
        token = ""
        if len(facts) > page.size:
            facts = facts[: page.size]
            last = facts[-1]
            token = page.next_token(
                last.kind.value, last.attribute, last.valid_from.isoformat(), last.fact_id
            )
        return pb.ListFactsResponse(facts=[convert.fact(f) for f in facts], next_page_token=token)

    async def PutFact(self, request: pb.PutFactRequest, context: Context) -> pb.PutFactResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        user_id = base.user(request.user_id)
        candidate = self._candidate(request)

        async def run(conn: Connection) -> pb.PutFactResponse:
            await turn_store.ensure_user(conn, user_id)
            await self._unbury(conn, user_id, candidate)
            await put_fact(conn, user_id, candidate)
            return pb.PutFactResponse(fact=convert.fact(await _current(conn, user_id, candidate)))

        return await self.write(request, pb.PutFactResponse, run, user_id)

    def _candidate(self, request: pb.PutFactRequest) -> Candidate:
        number = validate.one_of_enum("kind", request.kind, pb.FactKind)
        kind = convert.KINDS[pb.FactKind.ValueType(number)]
        attribute = _attribute(request.attribute)
        value = _safe("value", validate.text("value", request.value, 500).strip())
        language = language_of(value)
        given = _safe("statement", validate.text("statement", request.statement, 600, 0).strip())
        wanted = validate.one_of_enum(
            "cardinality", request.cardinality, pb.Cardinality, unspecified_ok=True
        )
        now = self.deps.now()
        start = self.past("valid_from", base.optional(request, "valid_from")) or now
        return Candidate(
            kind=kind,
            attribute=attribute,
            value=value,
            statement=given or profile.statement_of(attribute, value, language),
            quote="",
            turn_id="",
            session_id="",
            event_time=start,
            valid_from=start,
            origin=Origin.CALLER,
            language=language,
            cardinality=convert.CARDINALITIES.get(pb.Cardinality.ValueType(wanted)),
        )

    async def _unbury(self, conn: Connection, user_id: str, candidate: Candidate) -> None:
        tenant_id = base.tenant()
        stones = fact_hashes(tenant_id, user_id, candidate.attribute, candidate.value)
        await store.unbury(conn, profile.user_hash(tenant_id, user_id), stones)

    async def CorrectFact(
        self, request: pb.CorrectFactRequest, context: Context
    ) -> pb.CorrectFactResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        fact_id = base.uuid_of("fact_id", request.fact_id, "fact")
        value = _safe("value", validate.text("value", request.value, 500).strip())
        given = _safe("statement", validate.text("statement", request.statement, 600, 0).strip())

        async def run(conn: Connection) -> pb.CorrectFactResponse:
            await turn_store.ensure_user(conn, user_id)
            old = await _guarded(conn, user_id, fact_id, request.etag)
            if old.state is not FactState.ACTIVE:
                raise errors.failed_precondition(old.state.value, "The fact is not active.")
            await store.end_record(conn, user_id, fact_id, FactState.CORRECTED)
            if value_key(value) != value_key(old.value):
                stone = fact_hash(tenant_id, user_id, old.attribute, old.value)
                await store.bury(conn, profile.user_hash(tenant_id, user_id), "fact", [stone])
            candidate = _corrected(old, value, given)
            await self._unbury(conn, user_id, candidate)
            return pb.CorrectFactResponse(
                fact=convert.fact(await self._replace(conn, user_id, old, candidate))
            )

        return await self.write(request, pb.CorrectFactResponse, run, user_id)

    async def _replace(
        self, conn: Connection, user_id: str, old: Fact, candidate: Candidate
    ) -> Fact:
        """The new record in the place of the old one, or the active one of the same value."""
        same = [
            f
            for f in await facts_of(conn, user_id, old.attribute)
            if f.state is FactState.ACTIVE and f.value_key == value_key(candidate.value)
        ]
        if same:
            new_id = same[0].fact_id
        else:
            new_id = await store.insert(
                conn, user_id, candidate, value_key(candidate.value), old.cardinality,
                FactState.ACTIVE, old.valid_from, None,
            )  # fmt: skip
        found = await store.get(conn, user_id, new_id)
        assert found is not None
        return found

    async def RetractFact(
        self, request: pb.RetractFactRequest, context: Context
    ) -> pb.RetractFactResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        fact_id = base.uuid_of("fact_id", request.fact_id, "fact")

        async def run(conn: Connection) -> pb.RetractFactResponse:
            await turn_store.ensure_user(conn, user_id)
            old = await _guarded(conn, user_id, fact_id, request.etag)
            if request.purge:
                receipt = await Eraser(self.deps).fact(conn, tenant_id, user_id, old)
                return pb.RetractFactResponse(receipt=convert.receipt(receipt))
            await store.end_record(conn, user_id, fact_id, FactState.RETRACTED)
            stone = fact_hash(tenant_id, user_id, old.attribute, old.value)
            await store.bury(conn, profile.user_hash(tenant_id, user_id), "fact", [stone])
            found = await store.get(conn, user_id, fact_id)
            assert found is not None
            return pb.RetractFactResponse(fact=convert.fact(found))

        # The answer of a purge holds no content and must outlive the purge of stored answers.
        return await self.write(
            request, pb.RetractFactResponse, run, "" if request.purge else user_id
        )

    async def GetFactHistory(
        self, request: pb.GetFactHistoryRequest, context: Context
    ) -> pb.GetFactHistoryResponse:
        """See the contract."""
        page = validate.page(request, max_size=base.MAX_PAGE, default=base.DEFAULT_PAGE)
        attribute = _attribute(request.attribute)
        # "likes" and "dislikes" are one story.
        story = [attribute, *filter(None, [profile.opposite(attribute)])]
        attributes = [name for one in story for name in profile.stored_names(one)]
        after = None
        if page.cursor:
            moment, fact_id = (str(c) for c in page.cursor)
            after = (datetime.fromisoformat(moment), fact_id)
        async with self.deps.db.tenant() as conn:
            facts = await store.history(
                conn, base.user(request.user_id), attributes, after, page.size + 1
            )
        token = ""
        if len(facts) > page.size:
            facts = facts[: page.size]
            token = page.next_token(facts[-1].valid_from.isoformat(), facts[-1].fact_id)
        return pb.GetFactHistoryResponse(
            facts=[convert.fact(f) for f in facts], next_page_token=token
        )


def _attribute(value: str) -> str:
    text = validate.text("attribute", value, 64).strip()
    if not _ATTRIBUTE.fullmatch(text):
        raise errors.invalid_argument("attribute", "must be letters, digits and underscores")
    return profile.attribute_key(text)


def _safe(field: str, value: str) -> str:
    if value and safety.is_injection(value):
        raise errors.invalid_argument(field, "must not be an instruction to the system")
    return value


async def _guarded(conn: Connection, user_id: str, fact_id: str, etag: str) -> Fact:
    """The fact, locked; NOT_FOUND, ETAG_MISMATCH."""
    found = await store.get(conn, user_id, fact_id, lock=True)
    if found is None:
        raise errors.not_found("fact", fact_id)
    if etag and etag != found.etag:
        raise errors.etag_mismatch()
    # What is done to it is done to all that says the same, also as earlier versions stored it.
    names = profile.stored_names(found.attribute)
    if await rekey.facts(conn, user_id, names, keep=fact_id):
        found = await store.get(conn, user_id, fact_id)
    # Only active ones are merged: one of another state is there still.
    assert found is not None
    return found


def _corrected(old: Fact, value: str, statement: str) -> Candidate:
    language = language_of(value)
    return Candidate(
        kind=old.kind,
        attribute=old.attribute,
        value=value,
        statement=statement or profile.statement_of(old.attribute, value, language),
        quote="",
        turn_id="",
        session_id="",
        event_time=old.valid_from,
        valid_from=old.valid_from,
        origin=Origin.CALLER,
        language=language,
        cardinality=old.cardinality,
    )


async def _current(conn: Connection, user_id: str, candidate: Candidate) -> Fact:
    """The record that holds what was just stated."""
    key = value_key(candidate.value)
    rows = [
        f
        for f in await facts_of(conn, user_id, candidate.attribute)
        if f.value_key == key and f.valid_from <= candidate.valid_from
    ]
    found = await store.get(conn, user_id, rows[-1].fact_id) if rows else None
    if found is None:
        raise errors.internal("a fact is not there after it was put")
    return found
