"""Handlers of the remaining background work: session end, vectors, retention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from services.common.idempotency import purge as purge_requests
from services.common.jobs import JobRun, Jobs, Retry
from services.memory.deps import SCHEMA, Deps
from services.memory.digest import Digester, quarantine_if_any
from services.memory.store import episodes as vector_store
from services.memory.store import erase as erase_store
from services.memory.store import turns as turn_store
from services.memory.store import usage as usage_store
from services.memory.summarise import Summariser

RETENTION = "retention"


@dataclass(frozen=True)
class Background:
    """Everything the worker does."""

    deps: Deps
    digester: Digester
    summariser: Summariser

    def register(self, jobs: Jobs) -> None:
        """Tell `jobs` who does what."""
        jobs.register("digest", self.digester.handle)
        jobs.register("end_session", self.end_session)
        jobs.register("summary", self.summariser.handle)
        jobs.register("embed", self.embed)
        jobs.register(RETENTION, self.retention)

    async def end_session(self, run: JobRun) -> dict[str, str]:
        """Digest what is left of a session, then summarise it."""
        digested = await self.digester.digest(run)
        summarised = await self.summariser.handle(run)
        quarantine_if_any(digested)
        return {**digested, **summarised}

    async def embed(self, run: JobRun) -> dict[str, str]:
        """Give every item of a user that has no vector of the current model one."""
        user_id = run.subject["user_id"]
        kinds = ["episode", "reading", *(["turn"] if self.deps.settings.embed_turns else [])]
        done = failed = 0
        for kind in kinds:
            skip: set[str] = set()
            while True:
                await run.stop_if_cancelled()
                stored, refused = await self._embed_some(run, user_id, kind, skip)
                if not stored and not refused:
                    break
                skip |= refused
                done += stored
                failed += len(refused)
                await run.progress(done)
        return {"embedded": str(done), "failed": str(failed)}

    async def _embed_some(
        self, run: JobRun, user_id: str, kind: str, skip: set[str]
    ) -> tuple[int, set[str]]:
        """(vectors stored, ids the model refused) of the next batch."""
        model = await self.deps.embedder.model()
        if kind == "reading":
            # Readings are compared as wholes: no late interaction.
            model = replace(model, codec="")
        limit = self.deps.settings.embed_batch
        async with self.deps.db.tenant(run.tenant_id) as conn:
            rows = await vector_store.pending(conn, user_id, kind, model, limit + len(skip))
        wanted = [(i, text, version) for i, text, version in rows if i not in skip][:limit]
        blank = {i for i, text, _ in wanted if not text.strip()}
        wanted = [row for row in wanted if row[0] not in blank]
        if not wanted:
            return 0, blank
        reply = await self.deps.embedder.documents([text[:8_000] for _, text, _ in wanted])
        found = {
            row[0]: made if model.codec else replace(made, tokens=None)
            for row, made in zip(wanted, reply.items, strict=True)
            if made is not None
        }
        refused = blank | {row[0] for row in wanted if row[0] not in found}
        for item_id in refused - blank if reply.later is None else ():
            await run.item_error(item_id, "MODEL_FAILED", f"The model gave no vector for a {kind}.")
        async with self.deps.db.tenant(run.tenant_id) as conn:
            there = await turn_store.lock_user(conn, user_id)
            await run.fence(conn)
            if not there:
                return 0, refused
            versions = {i: version for i, _, version in wanted}
            alive = await vector_store.still_there(conn, user_id, kind, versions)
            await vector_store.put_vectors(
                conn, user_id, kind, reply.model_id, {i: v for i, v in found.items() if i in alive}
            )
            await turn_store.bump_index(conn, user_id)
        if reply.later is not None:
            # Nothing is wrong with those items: what was made is kept, the rest comes later.
            raise Retry(reply.later.reason, reply.later.retry_after_s, "The embedder is away.")
        return len(found), refused

    async def retention(self, run: JobRun) -> dict[str, str]:
        """Purge what is older than the tenant keeps it, and come back in a while."""
        now = self.deps.now()
        counts: dict[str, str] = {}
        async with self.deps.db.tenant(run.tenant_id) as conn:
            kept = (await usage_store.settings(conn)).retention_s
        for layer, seconds in kept.items():
            removed = 0
            while some := await self._purge_some(run, layer, now - timedelta(seconds=seconds)):
                removed += some
                await run.stop_if_cancelled()
            counts[layer] = str(removed)
        async with self.deps.db.tenant(run.tenant_id) as conn:
            await run.fence(conn)
            counts["requests"] = str(await purge_requests(conn, SCHEMA))
            if kept:
                await self.deps.jobs.enqueue(
                    conn, RETENTION, {}, lock=RETENTION, dedupe=RETENTION, unit="items",
                    delay_s=self.deps.settings.retention_every_s,
                )  # fmt: skip
        return counts

    async def _purge_some(self, run: JobRun, layer: str, before: datetime) -> int:
        """One transaction's worth; 0 when nothing is left."""
        async with self.deps.db.tenant(run.tenant_id) as conn:
            await run.fence(conn)
            return await erase_store.purge(conn, layer, before)
