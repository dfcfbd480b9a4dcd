"""readings: what the user read before that is like the current document."""

from __future__ import annotations

from dataclasses import dataclass

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator.engine import Failure, Outcome, skipped
from services.orchestrator.ports import Memory
from services.orchestrator.turn import Turn

_COMPARED_CHARS = 4_000


@dataclass(frozen=True)
class FindReadings:
    """Finds similar readings; unknown readings count neither as a first reading
    nor as a later one.
    """

    memory: Memory

    async def run(self, turn: Turn) -> Outcome:
        """Fill `turn.readings`."""
        asked = turn.input
        zh = asked.language == "zh"
        if not asked.use_memory or not asked.user_id:
            return skipped("未使用记忆" if zh else "memory is not used")
        document_id = asked.document_ids[0] if len(asked.document_ids) == 1 else ""
        text = "\n".join(item.text for item in turn.evidence)[:_COMPARED_CHARS]
        if not text and not document_id:
            return skipped("没有可比较的内容" if zh else "nothing to compare")
        turn.readings = await self.memory.readings(asked.user_id, document_id, text)
        turn.report_all(turn.readings.degradations)
        return Outcome(
            counts={
                "similar": str(len(turn.readings.similar)),
                "earlier": str(turn.readings.earlier),
            }
        )

    async def fallback(self, turn: Turn, failure: Failure) -> Outcome:
        """Summarise the document alone."""
        turn.degrade(
            common_pb2.DEGRADATION_KIND_MEMORY_LAYER_SKIPPED,
            "readings",
            "earlier readings could not be looked up",
            layer="readings",
            reason=failure.reason,
        )
        return Outcome(status=pb.STEP_STATUS_FALLBACK, message=failure.message)
