"""How a chat ended: what the streams of both clients know of it."""

from __future__ import annotations

from nianlun.errors import RunFailedError
from nianlun.orchestrator.v1 import orchestrator_pb2 as orchestrator


class Ending:
    """Sees the events of one run and remembers how it ended."""

    def __init__(self) -> None:
        self._run_id = ""
        self._completed: orchestrator.Completed | None = None

    def see(self, event: orchestrator.ChatEvent) -> None:
        """Take notice of the next event."""
        self._run_id = event.run_id
        if event.WhichOneof("event") == "completed":
            self._completed = event.completed

    @property
    def reached(self) -> bool:
        """Whether ``completed`` has arrived."""
        return self._completed is not None

    @property
    def response(self) -> orchestrator.ChatResponse | None:
        """The answer; None before the end, and for a run without an answer."""
        ended = self._completed
        if ended is None or ended.state != orchestrator.RUN_STATE_COMPLETED:
            return None
        return ended.response

    def answer(self) -> orchestrator.ChatResponse:
        """The answer of a run that has ended.

        Raises:
            RunFailedError: there is none.
        """
        if self.response is None:
            raise RunFailedError(self._run_id, self._completed and self._completed.error)
        return self.response
