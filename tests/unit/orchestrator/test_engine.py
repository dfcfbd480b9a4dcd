"""Steps: events around each, slices of the deadline, fallbacks, stages side by side."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common import context, errors
from services.common.context import CallContext
from services.common.deadlines import Deadline
from services.orchestrator.domain import TurnInput
from services.orchestrator.engine import Failure, Outcome, Step, run_stages
from services.orchestrator.events import EventLog, joined
from services.orchestrator.turn import Turn

LABELS = {"zh": "步骤", "en": "step"}


def _turn(seconds: float = 5.0) -> Turn:
    asked = TurnInput(message="?", event_time=datetime.now(UTC), language="zh")
    return Turn(input=asked, log=EventLog("r"), deadline=Deadline.after(seconds))


async def _run(turn: Turn, *stages: list[Step]) -> None:
    with context.bound(CallContext(rpc="test", request_id="r")):
        await run_stages(stages, turn)


async def _endless(turn: Turn) -> Outcome:
    await asyncio.Event().wait()
    return Outcome()


async def _broken(turn: Turn) -> Outcome:
    raise errors.dependency_unavailable("memory")


async def _instead(turn: Turn, failure: Failure) -> Outcome:
    return Outcome(status=pb.STEP_STATUS_FALLBACK, message=failure.reason)


async def test_events_surround_steps_and_stages_run_side_by_side() -> None:
    both = asyncio.Barrier(2)

    async def meet(turn: Turn) -> Outcome:
        await both.wait()
        return Outcome()

    turn = _turn(60.0)
    # One after the other the first would wait for the second until its slice is over.
    await _run(turn, [Step("a", LABELS, 30, meet), Step("b", LABELS, 30, meet)])
    kinds = [event.WhichOneof("event") for event in turn.log.events]
    assert kinds == ["step_started", "step_started", "step_finished", "step_finished"]
    assert [event.sequence for event in turn.log.events] == [1, 2, 3, 4]
    assert [step.status for step in turn.steps] == [pb.STEP_STATUS_OK] * 2


@pytest.mark.parametrize(
    ("run", "max_s", "reason"),
    [(_broken, 1.0, "DEPENDENCY_UNAVAILABLE"), (_endless, 0.05, "DEADLINE_EXCEEDED")],
)
async def test_a_failing_or_late_step_falls_back(run: object, max_s: float, reason: str) -> None:
    turn = _turn()
    await _run(turn, [Step("a", LABELS, max_s, run, _instead)])  # type: ignore[arg-type]
    assert turn.steps[0].status == pb.STEP_STATUS_FALLBACK
    assert turn.steps[0].message == reason
    turn = _turn()
    await _run(turn, [Step("a", LABELS, max_s, run)])  # type: ignore[arg-type]
    assert turn.steps[0].status == pb.STEP_STATUS_FAILED


async def test_a_step_sees_its_own_slice_and_leaves_the_reserve() -> None:
    seen: list[float] = []

    async def look(turn: Turn) -> Outcome:
        deadline = context.current().deadline
        assert deadline is not None
        seen.append(deadline.remaining())
        return Outcome()

    turn = _turn(1.0)
    await _run(turn, [Step("a", LABELS, 100, look, reserve_s=0.1)], [Step("b", LABELS, 0.3, look)])
    assert seen[0] < 0.95
    assert seen[1] < 0.31


async def test_stored_events_have_their_text_joined() -> None:
    log = EventLog("r")
    for piece in ("年", "轮", "。"):
        log.emit(pb.TextDelta(text=piece))
    log.emit(pb.Completed())
    log.emit(pb.TextDelta(text="too late"))
    found = joined(log.events)
    assert [event.WhichOneof("event") for event in found] == ["text_delta", "completed"]
    assert found[0].text_delta.text == "年轮。"
    assert [event.sequence for event in found] == [1, 2]
