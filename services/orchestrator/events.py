"""The ordered events of one run: emitted once, followed live, stored joined."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb

_FIELDS = {
    pb.StepStarted: "step_started",
    pb.StepFinished: "step_finished",
    pb.ContextReady: "context_ready",
    pb.TextDelta: "text_delta",
    pb.ThinkingDelta: "thinking_delta",
    pb.ToolCall: "tool_call",
    pb.Notice: "notice",
    pb.Completed: "completed",
}


class EventLog:
    """Events in order. `sequence` counts from 1 without gaps; Completed closes the log."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.started = time.monotonic()
        self.first_text_ms = 0.0
        self.events: list[pb.ChatEvent] = []
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def text(self) -> str:
        """The answer's text as sent so far."""
        return "".join(
            e.text_delta.text for e in self.events if e.WhichOneof("event") == "text_delta"
        )

    def elapsed_ms(self) -> float:
        """Milliseconds since the run began."""
        return (time.monotonic() - self.started) * 1000

    def emit(self, event: Message) -> None:
        """Append one event; ignored after Completed, which is always the last."""
        if self._closed:
            return
        if isinstance(event, pb.TextDelta) and not self.first_text_ms:
            self.first_text_ms = self.elapsed_ms()
        now = Timestamp()
        now.GetCurrentTime()
        wrapped = pb.ChatEvent(sequence=len(self.events) + 1, time=now, run_id=self.run_id)
        getattr(wrapped, _FIELDS[type(event)]).CopyFrom(event)
        self.events.append(wrapped)
        self._closed = isinstance(event, pb.Completed)
        self._changed.set()

    def close(self) -> None:
        """End the log without Completed: whoever made it broke down. Followers end."""
        self._closed = True
        self._changed.set()

    async def follow(self) -> AsyncIterator[pb.ChatEvent]:
        """Every event from the first on, ending after Completed. One follower at a time."""
        position = 0
        while True:
            self._changed.clear()
            while position < len(self.events):
                yield self.events[position]
                position += 1
            if self._closed:
                return
            await self._changed.wait()


def joined(events: list[pb.ChatEvent]) -> list[pb.ChatEvent]:
    """The events with neighbouring text and thinking pieces made one, numbered anew."""
    result: list[pb.ChatEvent] = []
    for event in events:
        kind = event.WhichOneof("event")
        last = result[-1] if result else None
        if last is not None and last.WhichOneof("event") == kind == "text_delta":
            last.text_delta.text += event.text_delta.text
        elif last is not None and last.WhichOneof("event") == kind == "thinking_delta":
            last.thinking_delta.text += event.thinking_delta.text
        else:
            copy = pb.ChatEvent()
            copy.CopyFrom(event)
            copy.sequence = len(result) + 1
            result.append(copy)
    return result
