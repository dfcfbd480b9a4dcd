"""Background work: saving turns that memory could not take, compacting long sessions, purging old
runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common.db import Connection, Database
from services.common.deadlines import Deadline
from services.common.errors import DomainError
from services.common.idempotency import derived
from services.common.idempotency import purge as purge_requests
from services.common.jobs import JobRecord, JobRun, Jobs, Retry
from services.orchestrator import budget, records, session_store, store, tokens
from services.orchestrator.endings import COMPACT_JOB, PURGE_JOB, SAVE_JOB, purge_later
from services.orchestrator.language import detect
from services.orchestrator.ports import Memory
from services.orchestrator.prompts import compaction
from services.orchestrator.reasoner.loop import Reasoner, Task, ToolResult
from services.orchestrator.reasoner.model import ModelMessage, ToolRequest, ToolSpec
from services.orchestrator.reasoner.spent import Spent
from services.orchestrator.sentences import split

FEEDBACK_JOB = "apply_feedback"
_SUMMARY_TOKENS = 800
_COMPACT_S = 90.0


class _NoTools:
    """A toolbox with nothing in it."""

    @property
    def specs(self) -> Sequence[ToolSpec]:
        return ()

    async def call(self, name: str, arguments: Mapping[str, object]) -> ToolResult:
        return ToolResult(f"There is no tool {name}.", "unknown tool", ok=False)


class _Silent:
    """A listener that nobody reads."""

    def text(self, piece: str) -> None:
        """Nothing to do."""

    def thinking(self, piece: str) -> None:
        """Nothing to do."""

    def tool_started(self, call: ToolRequest) -> None:
        """Nothing to do."""

    def tool_finished(self, call: ToolRequest, result: ToolResult, ms: float) -> None:
        """Nothing to do."""


@dataclass(frozen=True)
class Background:
    """The handlers. Each is idempotent and carries ids only."""

    db: Database
    jobs: Jobs
    memory: Memory
    reasoner: Reasoner
    keep_messages: int
    retention_days: int
    daily_tokens: int = 0

    def register(self) -> None:
        """Let `jobs` run these handlers."""
        self.jobs.register(SAVE_JOB, self.save_turn, timeout_s=60, on_failed=self.save_failed)
        self.jobs.register(COMPACT_JOB, self.compact_session, timeout_s=180)
        self.jobs.register(PURGE_JOB, self.purge_runs, timeout_s=300, on_failed=self.purge_failed)
        self.jobs.register(FEEDBACK_JOB, self.apply_feedback, timeout_s=60)

    async def save_turn(self, job: JobRun) -> Mapping[str, str]:
        """Save a run's exchange under its own request_id: twice is once."""
        run_id = job.subject["run_id"]
        async with self.db.tenant(job.tenant_id) as conn:
            found = await store.pending(conn, run_id)
        if found is None:
            return {"saved": "0"}
        exchange, reading, title = records.read_pending(found[0])
        try:
            await _once(self.memory.save(exchange))
            if reading:
                await _once(
                    self.memory.record_reading(
                        derived(exchange.request_id, "reading"),
                        exchange.user_id,
                        reading,
                        title,
                        exchange.assistant_text,
                    )
                )
        except DomainError as error:
            if error.retryable:
                raise Retry(
                    error.reason, error.retry_after_s, "memory does not take the turn yet"
                ) from error
            raise
        async with self.db.tenant(job.tenant_id) as conn:
            await job.fence(conn)
            await _show(conn, run_id, found[1], "saved")
        return {"saved": "1"}

    async def save_failed(self, conn: Connection, job: JobRecord) -> None:
        """No job tries to save the run any more: show it. What failed stays for a replay."""
        run_id = job.subject["run_id"]
        found = await store.pending(conn, run_id)
        if found is not None:
            await _show(conn, run_id, found[1], "failed")

    async def compact_session(self, job: JobRun) -> Mapping[str, str]:
        """Summarise all but the latest messages of a session."""
        user_id, session_id = job.subject["user_id"], job.subject["session_id"]
        async with self.db.tenant(job.tenant_id) as conn:
            messages, summary = await session_store.messages_since(conn, user_id, session_id)
        old = messages[: -self.keep_messages]
        if not old:
            return {"compacted": "0"}
        async with self.db.tenant(job.tenant_id) as conn:
            used_up = await budget.used_up(conn, self.daily_tokens)
        spent = Spent()
        try:
            made = None if used_up else await self._by_model(summary, old, spent)
        finally:
            await self._count(job.tenant_id, spent)
        text = made or _extracts(summary, old)
        async with self.db.tenant(job.tenant_id) as conn:
            await job.fence(conn)
            await session_store.compact(conn, user_id, session_id, old[-1].seq, text)
        return {"compacted": str(len(old))}

    async def _count(self, tenant_id: str, spent: Spent) -> None:
        async with self.db.tenant(tenant_id) as conn:
            await budget.count(conn, spent.prompt_tokens, spent.completion_tokens)

    async def purge_runs(self, job: JobRun) -> Mapping[str, str]:
        """Delete what is past its retention, and come back tomorrow for the rest."""
        async with self.db.tenant(job.tenant_id) as conn:
            await job.fence(conn)
            purged = {
                "runs": await store.purge_payloads(conn, self.retention_days),
                "sessions": await session_store.purge(conn, self.retention_days),
                "requests": await purge_requests(conn, "orchestrator"),
            }
            if await store.holds_anything(conn):
                await purge_later(conn, self.jobs)
        return {kind: str(count) for kind, count in purged.items()}

    async def purge_failed(self, conn: Connection, job: JobRecord) -> None:
        """A purge that went wrong must not be the last one."""
        await purge_later(conn, self.jobs)

    async def apply_feedback(self, job: JobRun) -> Mapping[str, str]:
        """Change a reading's weight, for feedback that memory could not take at once."""
        subject = job.subject
        try:
            await self.memory.reading_feedback(
                subject["request_id"],
                subject["user_id"],
                subject["document_id"],
                subject["verdict"] == "useful",
            )
        except DomainError as error:
            if error.retryable:
                raise Retry(
                    error.reason, error.retry_after_s, "memory does not take it yet"
                ) from error
            raise
        return {"applied": "1"}

    async def _by_model(
        self, previous: str, old: list[session_store.Message], spent: Spent
    ) -> str | None:
        """The model's summary; None where it is no good."""
        if not self.reasoner.available:
            return None
        language = detect(" ".join(m.text for m in old[-4:]))
        transcript = "\n".join(f"{m.role}: {m.text}" for m in old)
        messages = [
            ModelMessage("system", compaction.system(language)),
            ModelMessage("user", compaction.request(previous, transcript, language)),
        ]
        result = await self.reasoner.answer(
            Task(messages=messages, synthesis_request="", max_output_tokens=_SUMMARY_TOKENS),
            _NoTools(),
            _Silent(),
            Deadline.after(_COMPACT_S),
            spent,
        )
        if result.recovered:
            return None
        return tokens.cut((result.text or "").strip(), _SUMMARY_TOKENS)


async def _once(saving: Awaitable[object]) -> None:
    """Done as well where an earlier attempt of the run did it, with other words of the assistant:
    those stand in memory already.
    """
    try:
        await saving
    except DomainError as error:
        if error.reason != "REQUEST_ID_REUSED":
            raise


async def _show(conn: Connection, run_id: str, stored: bytes, state: str) -> None:
    """Write down how the save of a run stands."""
    record = pb.Run.FromString(stored)
    record.save_state = state
    await store.show_save(conn, run_id, record.SerializeToString(), done=state == "saved")


def _extracts(previous: str, old: list[session_store.Message]) -> str:
    """Without a model: the first sentence of each message, the latest ones where space is short."""
    lines = previous.splitlines()
    for message in old:
        found = split(message.text)
        if found:
            lines.append(f"{message.role}: {found[0].text[:160]}")
    kept: list[str] = []
    left = _SUMMARY_TOKENS
    for line in reversed(lines):
        left -= tokens.estimate(line) + 1
        if left < 0:
            break
        kept.append(line)
    return "\n".join(reversed(kept))
