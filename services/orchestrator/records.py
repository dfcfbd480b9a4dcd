"""What is kept of a run: its record without content, its response, its events, the exchange to
save.
"""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator import citations
from services.orchestrator.domain import HistoryLine
from services.orchestrator.events import joined
from services.orchestrator.ports import TurnToSave
from services.orchestrator.steps.save_memory import reading_of, to_save
from services.orchestrator.store import StoredRun
from services.orchestrator.turn import Turn

_STATES = {
    "running": pb.RUN_STATE_RUNNING,
    "completed": pb.RUN_STATE_COMPLETED,
    "failed": pb.RUN_STATE_FAILED,
    "cancelled": pb.RUN_STATE_CANCELLED,
    "lost": pb.RUN_STATE_FAILED,
}
_LOST = common_pb2.ItemError(
    reason=common_pb2.ERROR_REASON_INTERNAL,
    message="the process that answered it ended; the same request_id starts it again",
)


def completed(
    turn: Turn,
    state: str,
    error: common_pb2.ItemError | None,
    more: Sequence[common_pb2.Degradation] = (),
) -> pb.Completed:
    """The last event; `more` are degradations that nobody was told of yet."""
    event = pb.Completed(state=_STATES[state], error=error)
    if error is None:
        event.response.CopyFrom(_response(turn, more))
    return event


def _response(turn: Turn, more: Sequence[common_pb2.Degradation]) -> pb.ChatResponse:
    """The answer and how it came about."""
    return pb.ChatResponse(
        run_id=turn.log.run_id,
        answer=turn.answer,
        intent=turn.intent,
        degradations=[*turn.degradations, *more],
        steps=turn.steps,
        usage=turn.usage,
        prompt_tokens=turn.prompt.tokens if turn.prompt else None,
        model=turn.model,
        position=turn.position,
        sanitizations=turn.input.sanitizations,
    )


def record(
    turn: Turn,
    error: common_pb2.ItemError | None,
    more: Sequence[common_pb2.Degradation] = (),
) -> pb.Run:
    """The run without any text of the user, of memory or of documents."""
    cited = (
        {c.evidence_id: _place(c.evidence) for c in turn.answer.citations} if turn.answer else {}
    )
    return pb.Run(
        intent=turn.intent,
        steps=turn.steps,
        usage=turn.usage,
        prompt_tokens=turn.prompt.tokens if turn.prompt else None,
        degradations=[*turn.degradations, *more],
        model=turn.model,
        save_state=turn.save_state,
        cited=cited,
        error=error,
        route_reason=turn.route_reason,
        first_text_ms=turn.log.first_text_ms,
    )


def names_of(states: Container[pb.RunState.ValueType]) -> list[str]:
    """The names in the store of the contract's states."""
    return [name for name, state in _STATES.items() if state in states]


def shown(stored: StoredRun) -> pb.Run:
    """A stored run as the contract shows it."""
    run = pb.Run.FromString(stored.record) if stored.record else pb.Run()
    run.run_id = stored.run_id
    run.request_id = stored.request_id
    run.user_id = stored.user_id
    run.session_id = stored.session_id
    run.state = _STATES[stored.state]
    run.create_time.FromDatetime(stored.create_time)
    if stored.state == "lost":
        run.error.CopyFrom(_LOST)
    if stored.end_time is not None:
        run.end_time.FromDatetime(stored.end_time)
    return run


def with_completed(
    turn: Turn, completed: pb.Completed, more: Sequence[common_pb2.Degradation] = ()
) -> bytes:
    """The events as they are stored: text pieces joined, notices of `more`, `completed` last."""
    found = joined(turn.log.events)
    first, run_id, time = len(found) + 1, turn.log.run_id, now()
    for place, item in enumerate(more, first):
        notice = pb.Notice(degradation=item)
        found.append(pb.ChatEvent(sequence=place, time=time, run_id=run_id, notice=notice))
    place = first + len(more)
    found.append(pb.ChatEvent(sequence=place, time=time, run_id=run_id, completed=completed))
    return pb.GetRunResponse(events=found).SerializeToString()


def replayed(stored: bytes) -> list[pb.ChatEvent]:
    """Stored events for a second caller; the answer says that it is a replay."""
    found = list(pb.GetRunResponse.FromString(stored).events)
    for event in found:
        if event.WhichOneof("event") == "completed":
            event.completed.response.replayed = True
    return found


def prompt(turn: Turn) -> bytes | None:
    """The prompt, where it is to be kept."""
    if not turn.input.keep_prompt or turn.prompt is None:
        return None
    return pb.GetRunResponse(prompt=prompt_messages(turn)).SerializeToString()


def prompt_messages(turn: Turn) -> list[pb.PromptMessage]:
    """The assembled prompt in the contract's form."""
    if turn.prompt is None:
        return []
    return [pb.PromptMessage(role=m.role, text=m.text) for m in turn.prompt.messages]


def timings(turn: Turn) -> list[common_pb2.StepTiming]:
    """The time of each step so far, then what the services below report of theirs."""
    own = [common_pb2.StepTiming(step=one.step, ms=one.ms) for one in turn.steps]
    below = [
        common_pb2.StepTiming(step=f"{name}.{one.step}", ms=one.ms)
        for name, found in (("memory", turn.memory.timings), ("retriever", turn.retrieved.timings))
        for one in found
    ]
    return own + below


def checkpoint_lines(turn: Turn) -> tuple[HistoryLine, ...]:
    """What the session remembers of this turn."""
    if turn.answer is None:
        return ()
    answer = HistoryLine("assistant", citations.unmarked(turn.answer.text))
    return (HistoryLine("user", turn.input.message), answer)


def pending(turn: Turn) -> bytes | None:
    """The exchange for the job that saves it later; None where nothing is left to save."""
    if turn.save_state != "pending" or turn.answer is None:
        return None
    exchange = to_save(turn)
    value = {
        "request_id": exchange.request_id,
        "user_id": exchange.user_id,
        "session_id": exchange.session_id,
        "user_text": exchange.user_text,
        "assistant_text": exchange.assistant_text,
        "event_time": exchange.event_time.isoformat(),
        "time_zone": exchange.time_zone,
        "run_id": exchange.run_id,
        "reading": reading_of(turn),
        "title": turn.title,
    }
    return json.dumps(value, ensure_ascii=False).encode()


def read_pending(raw: bytes) -> tuple[TurnToSave, str, str]:
    """(exchange, document of its reading or "", that document's title) of a pending payload."""
    value = json.loads(raw)
    exchange = TurnToSave(
        request_id=value["request_id"],
        user_id=value["user_id"],
        session_id=value["session_id"],
        user_text=value["user_text"],
        assistant_text=value["assistant_text"],
        event_time=datetime.fromisoformat(value["event_time"]),
        time_zone=value["time_zone"],
        run_id=value["run_id"],
    )
    return exchange, value["reading"], value["title"]


def now() -> Timestamp:
    """The current instant as the contract writes it."""
    stamp = Timestamp()
    stamp.GetCurrentTime()
    return stamp


def _place(item: pb.Evidence) -> str:
    return f"{item.document_id}#{item.chunk_id}" if item.chunk_id else item.document_id
