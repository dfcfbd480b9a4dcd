"""Forgetting: removal with proof, and tombstones that keep old turns from bringing it back.

Every function runs in the caller's tenant transaction; the content is gone when that commits.
Receipts hold counts and hashes. The user's row lock is taken first, so that a digest either
finishes before or finds nothing to rest on.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from services.common import errors
from services.common.db import Connection
from services.memory.apply import fact_hash, note_hashes
from services.memory.deps import Deps
from services.memory.domain import Fact, Receipt
from services.memory.profile import tombstone_hash, user_hash
from services.memory.store import erase as store
from services.memory.store import facts as fact_store
from services.memory.store import turns as turn_store
from services.memory.store.erase import Removed


@dataclass(frozen=True)
class Eraser:
    """Removal for one tenant's users."""

    deps: Deps

    async def user(self, conn: Connection, tenant_id: str, user_id: str) -> Receipt:
        """Everything about a user."""
        await turn_store.lock_user(conn, user_id)
        hashes = [
            fact_hash(tenant_id, user_id, attribute, value)
            for attribute, value in await fact_store.values(conn, user_id)
        ]
        removed = await store.user(conn, user_id)
        self.deps.cache.drop(tenant_id, user_id, await turn_store.bump_index(conn, user_id))
        hashes += _turn_hashes(tenant_id, user_id, removed.ids.get("turns", []))
        return await self._receipt(conn, tenant_id, user_id, "user", user_id, removed, hashes)

    async def session(
        self, conn: Connection, tenant_id: str, user_id: str, session_id: str
    ) -> Receipt:
        """A session, and what rests on its turns alone."""
        await turn_store.lock_user(conn, user_id)
        removed = Removed()
        turn_ids = await store.turns_of_session(conn, user_id, session_id)
        hashes = await self._turns(conn, tenant_id, user_id, turn_ids, removed)
        await store.session_rows(conn, user_id, session_id, removed)
        await self._summaries(conn, tenant_id, user_id, [session_id], removed, ended=session_id)
        await self._after(conn, tenant_id, user_id)
        subject = f"{user_id}\x1f{session_id}"
        return await self._receipt(conn, tenant_id, user_id, "session", subject, removed, hashes)

    async def turn(self, conn: Connection, tenant_id: str, user_id: str, turn_id: str) -> Receipt:
        """One turn. NOT_FOUND."""
        await turn_store.lock_user(conn, user_id)
        found = await turn_store.get(conn, user_id, [turn_id])
        if not found:
            raise errors.not_found("turn", turn_id)
        removed = Removed()
        hashes = await self._turns(conn, tenant_id, user_id, [turn_id], removed)
        await self._summaries(conn, tenant_id, user_id, [found[0].session_id], removed)
        await self._after(conn, tenant_id, user_id)
        return await self._receipt(conn, tenant_id, user_id, "turn", turn_id, removed, hashes)

    async def fact(self, conn: Connection, tenant_id: str, user_id: str, fact: Fact) -> Receipt:
        """Every record of an attribute's value, and the notes and summaries of its turns."""
        removed = Removed()
        turn_ids, sessions = await store.facts_like(
            conn, user_id, fact.attribute, fact.value_key, removed
        )
        hashes = [fact_hash(tenant_id, user_id, fact.attribute, fact.value)]
        hashes += _turn_hashes(tenant_id, user_id, turn_ids)
        ids = await store.episodes_of_turns(conn, user_id, turn_ids)
        hashes += await self._notes(conn, tenant_id, user_id, ids, sessions, removed)
        await store.answers(conn, user_id, keep_appends=True)
        await self._after(conn, tenant_id, user_id)
        return await self._receipt(conn, tenant_id, user_id, "fact", fact.fact_id, removed, hashes)

    async def episode(
        self, conn: Connection, tenant_id: str, user_id: str, episode_id: str
    ) -> Receipt:
        """One note; its turns give no note again, and summaries that held it are made anew."""
        removed = Removed()
        hashes = await self._notes(conn, tenant_id, user_id, [episode_id], set(), removed)
        await store.answers(conn, user_id, keep_appends=True)
        await self._after(conn, tenant_id, user_id)
        return await self._receipt(conn, tenant_id, user_id, "episode", episode_id, removed, hashes)

    async def reading(
        self, conn: Connection, tenant_id: str, user_id: str, document_id: str
    ) -> Receipt:
        """One reading. NOT_FOUND."""
        removed = Removed()
        if not await store.reading(conn, user_id, document_id, removed):
            raise errors.not_found("reading", document_id)
        await store.answers(conn, user_id, keep_appends=True)
        await self._after(conn, tenant_id, user_id)
        subject = f"{user_id}\x1f{document_id}"
        return await self._receipt(conn, tenant_id, user_id, "reading", subject, removed, [])

    async def _turns(
        self,
        conn: Connection,
        tenant_id: str,
        user_id: str,
        turn_ids: Sequence[str],
        removed: Removed,
    ) -> list[str]:
        """Turns and what rests on them; returns hashes to bury."""
        hashes = _turn_hashes(tenant_id, user_id, turn_ids)
        # Their notes need no tombstone of their own: what the other sources say may come back.
        ids = await store.episodes_of_turns(conn, user_id, turn_ids)
        await store.episodes(conn, user_id, ids, removed)
        await store.unlink_turns(conn, user_id, turn_ids, removed)
        for row in await store.orphan_facts(conn, user_id, turn_ids, removed):
            hashes.append(fact_hash(tenant_id, user_id, row["attribute"], row["value"]))
            if row["state"] == "active" and row["cardinality"] == "one":
                await store.reopen(conn, user_id, row["attribute"], row["valid_from"])
        await store.turns(conn, user_id, turn_ids, removed)
        await store.answers(conn, user_id, keep_appends=True)
        return hashes

    async def _notes(
        self,
        conn: Connection,
        tenant_id: str,
        user_id: str,
        episode_ids: Sequence[str],
        sessions: set[str],
        removed: Removed,
    ) -> list[str]:
        """Notes, and the summaries of `sessions` and of every session in which they were said;
        returns hashes to bury."""
        rows = await store.episodes(conn, user_id, episode_ids, removed)
        told = sessions.union(*(row["sessions"] for row in rows))
        if told:
            await self._summaries(conn, tenant_id, user_id, sorted(told), removed)
        return [
            h for row in rows for h in note_hashes(tenant_id, user_id, row["note"], row["turns"])
        ]

    async def _summaries(
        self,
        conn: Connection,
        tenant_id: str,
        user_id: str,
        session_ids: Sequence[str],
        removed: Removed,
        *,
        ended: str | None = None,
    ) -> None:
        """Summaries of sessions and of the user, which is made of them; those that there were are
        queued to be made anew from what is left, but for that of a session that is gone."""
        for session_id in await store.summaries(conn, user_id, session_ids, removed):
            if session_id != ended:
                await self.deps.enqueue_session(conn, "summary", tenant_id, user_id, session_id)

    async def _after(self, conn: Connection, tenant_id: str, user_id: str) -> None:
        """Void the caches."""
        # Readers of the new version may keep what they read; those of older ones must not.
        version = await turn_store.bump_index(conn, user_id)
        self.deps.cache.drop(tenant_id, user_id, version - 1)

    async def _receipt(
        self,
        conn: Connection,
        tenant_id: str,
        user_id: str,
        scope: str,
        subject: str,
        removed: Removed,
        hashes: Sequence[str],
    ) -> Receipt:
        unique = sorted(set(hashes))
        buried = 0
        if unique:
            buried = await fact_store.bury(conn, user_hash(tenant_id, user_id), scope, unique)
        ids = sorted(f"{table}:{i}" for table, found in removed.ids.items() for i in found)
        receipt = Receipt(
            receipt_id=str(uuid.uuid4()),
            scope=scope,
            subject_hash=user_hash(tenant_id, subject),
            removed=removed.counts,
            content_hash=hashlib.sha256("\n".join(ids).encode()).hexdigest(),
            erased_at=self.deps.now(),
            tombstones=buried,
        )
        await store.put_receipt(conn, receipt)
        return receipt


def _turn_hashes(tenant_id: str, user_id: str, turn_ids: Sequence[str]) -> list[str]:
    return [tombstone_hash(tenant_id, user_id, "note_of_turn", t) for t in turn_ids]


async def ended_job(conn: Connection, kind: str, receipt: Receipt) -> str:
    """A status row that holds the receipt; returns the job's id."""
    job_id = str(uuid.uuid4())
    subject = {"receipt_id": receipt.receipt_id, "subject_hash": receipt.subject_hash}
    result = {f"{table}_removed": str(n) for table, n in receipt.removed.items()}
    result |= {"content_hash": receipt.content_hash, "tombstones": str(receipt.tombstones)}
    await store.ended_job(conn, job_id, kind, subject, result)
    return job_id
