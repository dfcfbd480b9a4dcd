"""OrchestratorService: proto in, domain call, proto out."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime
from typing import Any, TypeVar

from nianlun.memory.v1 import memory_pb2, memory_pb2_grpc
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from nianlun.orchestrator.v1 import orchestrator_pb2_grpc
from services.common import errors, validate
from services.common.db import Database
from services.common.errors import DomainError
from services.common.idempotency import fingerprint, replay_or_run
from services.common.jobs import Jobs
from services.common.status import from_item
from services.orchestrator import records, store
from services.orchestrator.background import FEEDBACK_JOB
from services.orchestrator.ports import Memory
from services.orchestrator.requests import Defaults, turn_input
from services.orchestrator.runs import Runs
from services.orchestrator.turn import Turn

_EraseRequest = pb.EraseUserRequest | pb.EraseSessionRequest
_Erased = TypeVar("_Erased", pb.EraseUserResponse, pb.EraseSessionResponse)
_VERDICTS = {
    pb.FEEDBACK_VERDICT_USEFUL: "useful",
    pb.FEEDBACK_VERDICT_NOT_USEFUL: "not_useful",
}
_VERDICT_NUMBERS = {name: number for number, name in _VERDICTS.items()}


class OrchestratorServicer(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    """Thin: everything it knows of is bounds and conversion."""

    def __init__(
        self,
        db: Database,
        jobs: Jobs,
        runs: Runs,
        memory: Memory,
        memory_stub: memory_pb2_grpc.MemoryServiceAsyncStub,
        defaults: Defaults,
    ) -> None:
        self._db = db
        self._jobs = jobs
        self._runs = runs
        self._memory = memory
        self._memory_stub = memory_stub
        self._defaults = defaults

    async def BuildContext(
        self, request: pb.BuildContextRequest, context: Any
    ) -> pb.BuildContextResponse:
        """What a model would be told."""
        asked, _ = turn_input(request.input, self._defaults)
        return _context(await self._runs.context(asked))

    async def Chat(self, request: pb.ChatRequest, context: Any) -> pb.ChatResponse:
        """The answer as one whole."""
        async for event in self._events(request):
            if event.WhichOneof("event") == "completed":
                return _answered(event.completed)
        raise errors.internal("a run ended without Completed")

    async def StreamChat(
        self, request: pb.StreamChatRequest, context: Any
    ) -> AsyncIterator[pb.StreamChatResponse]:
        """The answer as events."""
        stream = self._events(request)
        try:
            async for event in stream:
                yield pb.StreamChatResponse(event=event)
        finally:
            await stream.aclose()

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> pb.GetRunResponse:
        """One run."""
        run_id = _run_id(request.run_id)
        async with self._db.tenant() as conn:
            stored = await store.get_run(conn, run_id)
            verdicts = await store.feedback(conn, run_id) if stored else []
        if stored is None:
            raise errors.not_found("run", run_id)
        run = records.shown(stored)
        run.feedback.extend(_feedback(row) for row in verdicts)
        response = pb.GetRunResponse(run=run)
        if request.include_events and stored.events:
            response.events.extend(pb.GetRunResponse.FromString(stored.events).events)
        if request.include_prompt and stored.prompt:
            response.prompt.extend(pb.GetRunResponse.FromString(stored.prompt).prompt)
        return response

    async def ListRuns(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        """Runs, newest first."""
        user_id = validate.ident("user_id", request.user_id) if request.user_id else ""
        session_id = validate.ident("session_id", request.session_id) if request.session_id else ""
        if session_id and not user_id:
            raise errors.invalid_argument("user_id", "is required where session_id is given")
        validate.count("states", request.states, 4)
        for state in request.states:
            validate.one_of_enum("states", state, pb.RunState)
        page = validate.page(request, max_size=200, default=50)
        before = None
        if page.cursor:
            before = (datetime.fromisoformat(str(page.cursor[0])), str(page.cursor[1]))
        async with self._db.tenant() as conn:
            found = await store.list_runs(
                conn,
                user_id=user_id,
                session_id=session_id,
                states=records.names_of(request.states),
                before=before,
                limit=page.size + 1,
            )
        shown = found[: page.size]
        token = ""
        if len(found) > page.size:
            token = page.next_token(shown[-1].create_time.isoformat(), shown[-1].run_id)
        return pb.ListRunsResponse(
            runs=[records.shown(one) for one in shown], next_page_token=token
        )

    async def SubmitFeedback(
        self, request: pb.SubmitFeedbackRequest, context: Any
    ) -> pb.SubmitFeedbackResponse:
        """A verdict on an answer or a recommended reading."""
        request_id = validate.request_id(request.request_id)
        run_id = _run_id(request.run_id)
        given = request.feedback
        validate.one_of_enum("feedback.verdict", given.verdict, pb.FeedbackVerdict)
        verdict = _VERDICTS[given.verdict]
        reading_id = (
            validate.ident("feedback.reading_id", given.reading_id) if given.reading_id else ""
        )
        comment = validate.text("feedback.comment", given.comment, 2_000, 0)
        async with self._db.tenant() as conn:
            stored = await store.get_run(conn, run_id)
        if stored is None:
            raise errors.not_found("run", run_id)
        document_id = _recommended(stored, reading_id) if reading_id else ""
        applied = True
        if document_id:
            applied = await self._apply(request_id, stored.user_id, document_id, verdict)

        async def write() -> pb.SubmitFeedbackResponse:
            when = await store.put_feedback(conn, run_id, reading_id, verdict, comment)
            if not applied:
                await self._jobs.enqueue(
                    conn,
                    FEEDBACK_JOB,
                    {
                        "request_id": request_id,
                        "user_id": stored.user_id,
                        "document_id": document_id,
                        "verdict": verdict,
                    },
                )
            row = {
                "verdict": verdict,
                "reading_id": reading_id,
                "comment": comment,
                "create_time": when,
            }
            return pb.SubmitFeedbackResponse(feedback=_feedback(row), applied=applied)

        async with self._db.tenant() as conn:
            return await replay_or_run(
                conn,
                "orchestrator",
                request,
                pb.SubmitFeedbackResponse,
                write,
                subject=store.answers_about(stored.user_id, stored.session_id),
            )

    async def EraseUser(self, request: pb.EraseUserRequest, context: Any) -> pb.EraseUserResponse:
        """Forget a user, or what the deprecated field says: one session; here and in memory."""
        user_id = validate.ident("user_id", request.user_id)
        session_id = validate.ident("session_id", request.session_id) if request.session_id else ""
        return await self._erase(request, pb.EraseUserResponse, user_id, session_id)

    async def EraseSession(
        self, request: pb.EraseSessionRequest, context: Any
    ) -> pb.EraseSessionResponse:
        """Forget one session, here and in memory."""
        user_id = validate.ident("user_id", request.user_id)
        session_id = validate.ident("session_id", request.session_id)
        return await self._erase(request, pb.EraseSessionResponse, user_id, session_id)

    async def _erase(
        self, request: _EraseRequest, response: type[_Erased], user_id: str, session_id: str
    ) -> _Erased:
        request_id = validate.request_id(request.request_id)
        # Memory first: should it fail, nothing here claims to be forgotten. Both are idempotent.
        erased = await self._erase_memory(request_id, user_id, session_id)

        async with self._db.tenant() as conn:

            async def write() -> _Erased:
                removed = await store.erase(conn, user_id, session_id)
                return response(
                    removed=removed,
                    memory_job=erased.job,
                    memory_receipt_id=erased.receipt.receipt_id,
                )

            return await replay_or_run(conn, "orchestrator", request, response, write)

    async def _erase_memory(
        self, request_id: str, user_id: str, session_id: str
    ) -> memory_pb2.EraseUserResponse | memory_pb2.EraseSessionResponse:
        if session_id:
            return await self._memory_stub.EraseSession(
                memory_pb2.EraseSessionRequest(
                    request_id=request_id, user_id=user_id, session_id=session_id
                )
            )
        return await self._memory_stub.EraseUser(
            memory_pb2.EraseUserRequest(request_id=request_id, user_id=user_id)
        )

    async def _apply(self, request_id: str, user_id: str, document_id: str, verdict: str) -> bool:
        try:
            await self._memory.reading_feedback(
                request_id, user_id, document_id, verdict == "useful"
            )
        except DomainError as error:
            if not error.retryable:
                raise
            return False
        return True

    def _events(
        self, request: pb.ChatRequest | pb.StreamChatRequest
    ) -> AsyncGenerator[pb.ChatEvent, None]:
        request_id = validate.request_id(request.request_id)
        asked, bad_user = turn_input(request.input, self._defaults)
        return self._runs.stream(asked, request_id, fingerprint(request), bad_user)


def _answered(completed: pb.Completed) -> pb.ChatResponse:
    if completed.state == pb.RUN_STATE_COMPLETED:
        return completed.response
    raise from_item(completed.error)


def _context(turn: Turn) -> pb.BuildContextResponse:
    return pb.BuildContextResponse(
        intent=turn.intent,
        route_reason=turn.route_reason,
        prompt=records.prompt_messages(turn),
        evidence=turn.evidence,
        memories=turn.memory.items,
        left_out=turn.memory.left_out,
        tokens=turn.prompt.tokens if turn.prompt else None,
        degradations=turn.degradations,
        timings=records.timings(turn),
        sanitizations=turn.input.sanitizations,
        confidence=turn.retrieved.confidence,
    )


def _run_id(value: str) -> str:
    try:
        return str(uuid.UUID(value))
    except ValueError:
        raise errors.invalid_argument("run_id", "is no UUID") from None


def _recommended(stored: store.StoredRun, reading_id: str) -> str:
    """The document of a reading that the run recommended; NOT_FOUND for any other reading."""
    for event in pb.GetRunResponse.FromString(stored.events or b"").events:
        if event.WhichOneof("event") == "context_ready":
            for one in event.context_ready.recommendations:
                if one.reading_id == reading_id:
                    return one.document_id
    raise errors.not_found("reading", reading_id)


def _feedback(row: dict[str, Any]) -> pb.Feedback:
    message = pb.Feedback(
        verdict=_VERDICT_NUMBERS[row["verdict"]],
        reading_id=row["reading_id"],
        comment=row["comment"],
    )
    message.create_time.FromDatetime(row["create_time"])
    return message
