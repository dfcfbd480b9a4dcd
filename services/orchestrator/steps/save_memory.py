"""save_memory: the exchange goes to memory after the answer; a failure is left to
a job and shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common.idempotency import derived
from services.orchestrator import citations
from services.orchestrator.domain import degradation
from services.orchestrator.engine import Failure, Outcome, skipped
from services.orchestrator.ports import Memory, TurnToSave
from services.orchestrator.turn import Turn


@dataclass(frozen=True)
class SaveMemory:
    """Appends the turn under the run's request_id, so that a second attempt changes nothing."""

    memory: Memory

    async def run(self, turn: Turn) -> Outcome:
        """Save the exchange, and for a summary the reading."""
        zh = turn.input.language == "zh"
        if not turn.input.save_turn or turn.answer is None:
            return skipped("未要求保存" if zh else "saving is switched off")
        if not turn.input.user_id:
            return skipped("没有可用的用户标识" if zh else "no usable user_id")
        turn.position = await self.memory.save(to_save(turn))
        turn.save_state = "saved"
        document_id = reading_of(turn)
        if document_id:
            await self.memory.record_reading(
                derived(turn.request_id, "reading"),
                turn.input.user_id,
                document_id,
                turn.title,
                citations.unmarked(turn.answer.text),
            )
        return Outcome()

    async def fallback(self, turn: Turn, failure: Failure) -> Outcome:
        """Leave it to the job that is queued together with the run's end; until then nothing is
        promised. What is saved already is not saved twice.
        """
        turn.save_state, turn.save_failure = "pending", failure.reason
        return Outcome(status=pb.STEP_STATUS_FALLBACK, message=failure.message)


def save_pending(turn: Turn) -> common_pb2.Degradation:
    """That a job goes on trying to save the turn; true once the job is queued."""
    return degradation(
        common_pb2.DEGRADATION_KIND_SAVE_PENDING,
        "save_memory",
        "本轮对话还没有存入记忆，后台会继续尝试"
        if turn.input.language == "zh"
        else "the turn is not in memory yet; a job goes on trying",
        reason=turn.save_failure,
    )


def to_save(turn: Turn) -> TurnToSave:
    """The exchange as memory takes it: what was said, nothing of what was injected."""
    assert turn.answer is not None
    return TurnToSave(
        request_id=turn.request_id,
        user_id=turn.input.user_id,
        session_id=turn.input.session_id or f"run:{turn.log.run_id}",
        user_text=turn.input.message,
        assistant_text=citations.unmarked(turn.answer.text)[:32_000] or "-",
        event_time=turn.input.event_time,
        time_zone=turn.input.time_zone,
        run_id=turn.log.run_id,
    )


def reading_of(turn: Turn) -> str:
    """The document that a summary was about; empty where nothing was read."""
    if turn.intent != pb.INTENT_PERSONALISED_SUMMARY or not turn.evidence:
        return ""
    ids = turn.input.document_ids
    return ids[0] if len(ids) == 1 else ""
