"""What the use cases stand on, put together once by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from services.common.db import Connection, Database
from services.common.jobs import Jobs
from services.memory import index as indexes
from services.memory.embedding import Embedder
from services.memory.grouping import TurnWriter
from services.memory.index import IndexCache, UserIndex
from services.memory.profile import user_hash
from services.memory.settings import MemorySettings
from services.memory.store import episodes as episode_store
from services.memory.store import turns as turn_store
from services.memory.threads import by_size
from services.memory.vectors import Question

SCHEMA = "memory"


def utc_now() -> datetime:
    """The current instant."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Unbuilt:
    """What an index is built from; `size` in terms, `beyond` as in the index."""

    tenant_id: str
    user_id: str
    kind: str
    build: Callable[[], UserIndex]
    size: int
    beyond: int


@dataclass(frozen=True)
class Deps:
    """Dependencies of the use cases. `wake` tells the worker of committed jobs; `now` is the
    clock."""

    settings: MemorySettings
    db: Database
    jobs: Jobs
    embedder: Embedder
    cache: IndexCache
    writer: TurnWriter
    wake: Callable[[], None] = field(default=lambda: None)
    now: Callable[[], datetime] = field(default=utc_now)

    async def read_index(
        self,
        conn: Connection,
        tenant_id: str,
        user_id: str,
        kind: str,
        version: tuple[int, ...],
        question: Question | None,
    ) -> UserIndex | Unbuilt:
        """The index of a user's notes ("episode") or turns ("turn"), of exactly `version`, with
        vectors of the question's model; without a question with those it has.

        `conn` is only used when the cache does not have it; give what comes back to `built` when
        the connection is free again.
        """
        model_id = question.model_id if question else ""
        cached = self.cache.get(tenant_id, user_id, kind, version, model_id)
        if cached is not None:
            return cached
        limit = self.settings.index_items
        vectors = await episode_store.vectors(conn, user_id, kind, model_id) if model_id else {}
        build: Callable[[], UserIndex]
        if kind == "episode":
            notes = await episode_store.indexed(conn, user_id, limit + 1)
            build = partial(indexes.of_episodes, version, model_id, notes[:limit], vectors)
            sizes = [len(terms) for _, terms in notes]
        else:
            turns = await turn_store.indexed(conn, user_id, limit + 1)
            build = partial(indexes.of_turns, version, model_id, turns[:limit], vectors)
            sizes = [len(terms) for _, terms in turns]
        beyond = 0
        if len(sizes) > limit:
            beyond = await episode_store.count_indexed(conn, user_id, kind) - limit
        return Unbuilt(tenant_id, user_id, kind, build, sum(sizes), beyond)

    async def built(self, found: UserIndex | Unbuilt) -> UserIndex:
        """The index, and the cache has it. Building a large one leaves the loop free."""
        if isinstance(found, UserIndex):
            return found
        made = replace(await by_size(found.size, found.build), beyond=found.beyond)
        self.cache.put(found.tenant_id, found.user_id, found.kind, made)
        return made

    async def enqueue_session(
        self, conn: Connection, kind: str, tenant_id: str, user_id: str, session_id: str
    ) -> str:
        """Queue work on one session ("digest", "summary", "end_session"); returns the job's id."""
        return await self.jobs.enqueue(
            conn, kind, {"user_id": user_id, "session_id": session_id},
            lock=lock_of(tenant_id, user_id),
            dedupe=session_key(tenant_id, user_id, session_id), unit="turns",
        )  # fmt: skip

    async def enqueue_embed(self, conn: Connection, tenant_id: str, user_id: str) -> None:
        """Queue the vectors that a user's items lack; beside the user's other jobs."""
        key = user_hash(tenant_id, user_id)[:32]
        await self.jobs.enqueue(
            conn, "embed", {"user_id": user_id}, lock=f"embed:{key}", dedupe=key, unit="items"
        )


def lock_of(tenant_id: str, user_id: str) -> str:
    """Jobs of one user never run at the same time. A hash: queues must not name users."""
    return f"user:{user_hash(tenant_id, user_id)[:32]}"


def session_key(tenant_id: str, user_id: str, session_id: str) -> str:
    """Deduplication key of work on one session."""
    return user_hash(tenant_id, f"{user_id}\x1f{session_id}")[:32]
