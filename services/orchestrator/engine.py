"""The step engine: named steps in stages, each with a deadline slice, events and a fallback.

The order is data (`intents.py`): a tuple of stages; the steps of one stage run side by side. A step
that fails or is late hands over to its fallback; the run goes on either way. Only cancellation ends
it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common import context
from services.common.errors import DomainError
from services.orchestrator.domain import Language
from services.orchestrator.turn import Turn

_RESERVE_SHARE = 0.2


@dataclass(frozen=True)
class Outcome:
    """How a step went. `counts` holds numbers and states, never content."""

    status: pb.StepStatus.ValueType = pb.STEP_STATUS_OK
    counts: Mapping[str, str] = field(default_factory=dict)
    message: str = ""


@dataclass(frozen=True)
class Failure:
    """Why a step did not come through: a published reason and a sentence for people."""

    reason: str
    message: str


StepRun = Callable[[Turn], Awaitable[Outcome]]
StepFallback = Callable[[Turn, Failure], Awaitable[Outcome]]


@dataclass(frozen=True)
class Step:
    """One step. `max_s` is its slice at most; `reserve_s` stays untouched for the
    steps after it.
    """

    name: str
    labels: Mapping[Language, str]
    max_s: float
    run: StepRun
    fallback: StepFallback | None = None
    reserve_s: float = 0.0


def skipped(message: str = "") -> Outcome:
    """The outcome of a step that had nothing to do."""
    return Outcome(status=pb.STEP_STATUS_SKIPPED, message=message)


async def run_stages(stages: Sequence[Sequence[Step]], turn: Turn) -> None:
    """Run the stages in order, the steps of one stage side by side."""
    for stage in stages:
        if len(stage) == 1:
            await run_step(stage[0], turn)
            continue
        async with asyncio.TaskGroup() as group:
            for step in stage:
                group.create_task(run_step(step, turn))


async def run_step(step: Step, turn: Turn) -> None:
    """Run one step inside its slice and emit its start and finish."""
    # A short deadline must not be eaten up by the reserve.
    reserve = min(step.reserve_s, turn.deadline.remaining() * _RESERVE_SHARE)
    window = turn.deadline.slice(step.max_s, margin_s=reserve)
    budget = max(0.0, window.remaining())
    label = step.labels[turn.input.language]
    start_ms = turn.log.elapsed_ms()
    begun = time.monotonic()
    turn.log.emit(pb.StepStarted(step=step.name, label=label, budget_ms=budget * 1000))
    record = pb.StepRecord(step=step.name, label=label, start_ms=start_ms)
    turn.steps.append(record)
    outcome = Outcome(status=pb.STEP_STATUS_CANCELLED)
    try:
        with context.narrowed(window):
            outcome = await _attempt(step, turn, budget)
    finally:
        record.status = outcome.status
        record.ms = (time.monotonic() - begun) * 1000
        record.counts.update(outcome.counts)
        record.message = outcome.message[:500]
        turn.log.emit(
            pb.StepFinished(
                step=step.name,
                status=record.status,
                ms=record.ms,
                counts=record.counts,
                message=record.message,
            )
        )


async def _attempt(step: Step, turn: Turn, budget: float) -> Outcome:
    try:
        async with asyncio.timeout(budget):
            return await step.run(turn)
    except TimeoutError:
        failure = Failure("DEADLINE_EXCEEDED", f"{step.name} took longer than {budget:.1f} s")
    except DomainError as error:
        failure = Failure(error.reason, f"{step.name} failed: {error.reason}")
    if step.fallback is None:
        return Outcome(status=pb.STEP_STATUS_FAILED, message=failure.message)
    return await step.fallback(turn, failure)
