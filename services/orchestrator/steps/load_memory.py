"""load_memory: what is known of the user for this message."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator.engine import Failure, Outcome, skipped
from services.orchestrator.ports import Memory
from services.orchestrator.prompts.assemble import Budget, latest, rest_of
from services.orchestrator.turn import Turn


@dataclass(frozen=True)
class LoadMemory:
    """Loads memory within `budget_tokens`; without it the run goes on. `prompt` says how much of
    the session will be shown.
    """

    memory: Memory
    budget_tokens: int
    prompt: Budget

    async def run(self, turn: Turn) -> Outcome:
        """Fill `turn.memory`. The session's own turns are left out where the history shows them
        all.
        """
        zh = turn.input.language == "zh"
        if not turn.input.use_memory:
            return skipped("记忆已关闭" if zh else "memory is switched off")
        if not turn.input.user_id:
            message = (
                "没有可用的用户标识，未使用记忆" if zh else "no usable user_id: memory was not used"
            )
            turn.degrade(common_pb2.DEGRADATION_KIND_MEMORY_SKIPPED, "load_memory", message)
            return skipped(message)
        rest = rest_of(turn.input, self.budget_tokens)
        _, cut = latest(turn.history.lines, self.prompt.history_share(rest))
        turn.memory = await self.memory.load(
            turn.input, self.budget_tokens, exclude_session=turn.history.stored and not cut
        )
        turn.report_all(turn.memory.degradations)
        layers = Counter(item.layer for item in turn.memory.items)
        counts = {layer: str(count) for layer, count in sorted(layers.items())}
        return Outcome(counts={**counts, "tokens": str(turn.memory.tokens)})

    async def fallback(self, turn: Turn, failure: Failure) -> Outcome:
        """Go on without memory and say so."""
        zh = turn.input.language == "zh"
        message = (
            "记忆服务没有及时应答，本次回答未使用记忆"
            if zh
            else "memory did not answer: answered without it"
        )
        turn.degrade(
            common_pb2.DEGRADATION_KIND_MEMORY_SKIPPED,
            "load_memory",
            message,
            reason=failure.reason,
        )
        return Outcome(status=pb.STEP_STATUS_FALLBACK, message=failure.message)
