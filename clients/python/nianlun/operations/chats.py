"""Operations of the orchestrator: chat, context, runs, feedback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from google.protobuf.message import Message as ProtoMessage

from nianlun.operations.core import operation
from nianlun.orchestrator.v1 import orchestrator_pb2 as orchestrator
from nianlun.values import Plain, new_request_id, timestamp, value_map


def chat_input(
    user_id: str,
    session_id: str,
    message: str,
    *,
    collection_id: str = "",
    document_ids: Sequence[str] = (),
    intent: orchestrator.Intent.ValueType = orchestrator.INTENT_UNSPECIFIED,
    selected_text: str = "",
    instructions: str = "",
    use_memory: bool | None = None,
    use_retrieval: bool | None = None,
    save_turn: bool | None = None,
    verify: bool = False,
    top_k: int = 0,
    language: str = "",
    time_zone: str = "",
    event_time: datetime | None = None,
    at_least_position: str = "",
    keep_prompt: bool = False,
    metadata_equals: Mapping[str, Plain] | None = None,
    document_title: str = "",
    use_tools: bool | None = None,
    response_schema: str = "",
    history: Sequence[orchestrator.HistoryMessage] = (),
    generation: orchestrator.Generation | None = None,
) -> orchestrator.ChatInput:
    """What the user says, and what the answer may draw on: the fields of ``ChatInput``."""
    scope = None
    if collection_id or document_ids or metadata_equals:
        scope = orchestrator.Scope(
            collection_id=collection_id,
            document_ids=document_ids,
            metadata_equals=value_map(metadata_equals),
        )
    return orchestrator.ChatInput(
        user_id=user_id,
        session_id=session_id,
        message=message,
        intent=intent,
        scope=scope,
        selected_text=selected_text,
        instructions=instructions,
        use_memory=use_memory,
        use_retrieval=use_retrieval,
        save_turn=save_turn,
        verify=verify,
        top_k=top_k,
        language=language,
        time_zone=time_zone,
        event_time=timestamp(event_time),
        at_least_position=at_least_position,
        keep_prompt=keep_prompt,
        document_title=document_title,
        use_tools=use_tools,
        response_schema=response_schema,
        history=history,
        generation=generation,
    )


@operation("orchestrator", "Chat", orchestrator.ChatResponse, writes_an_answer=True)
def chat(asked: orchestrator.ChatInput, *, request_id: str | None = None) -> ProtoMessage:
    """Answer one message (see ``chat_input``); the turn is remembered.

    Its deadline is ``stream_timeout_s``, as that of a streamed chat.
    """
    return orchestrator.ChatRequest(input=asked, request_id=request_id or new_request_id())


def stream_chat(
    asked: orchestrator.ChatInput,
    *,
    request_id: str | None = None,
) -> orchestrator.StreamChatRequest:
    """The request of a streamed chat; ``Client.stream_chat`` sends it."""
    return orchestrator.StreamChatRequest(input=asked, request_id=request_id or new_request_id())


@operation("orchestrator", "BuildContext", orchestrator.BuildContextResponse)
def build_context(asked: orchestrator.ChatInput) -> ProtoMessage:
    """What a chat would put before the model: no model is called, nothing is stored."""
    return orchestrator.BuildContextRequest(input=asked)


@operation("orchestrator", "GetRun", orchestrator.GetRunResponse)
def get_run(
    run_id: str, *, include_events: bool = False, include_prompt: bool = False
) -> ProtoMessage:
    """A run with its steps; its events and prompt on request."""
    return orchestrator.GetRunRequest(
        run_id=run_id, include_events=include_events, include_prompt=include_prompt
    )


@operation("orchestrator", "ListRuns", orchestrator.ListRunsResponse)
def list_runs(
    *,
    user_id: str = "",
    session_id: str = "",
    states: Sequence[orchestrator.RunState.ValueType] = (),
    page_size: int = 0,
    page_token: str = "",
) -> ProtoMessage:
    """One page of runs, newest first; ``session_id`` needs ``user_id``."""
    return orchestrator.ListRunsRequest(
        user_id=user_id,
        session_id=session_id,
        states=states,
        page_size=page_size,
        page_token=page_token,
    )


@operation("orchestrator", "SubmitFeedback", orchestrator.SubmitFeedbackResponse)
def submit_feedback(
    run_id: str,
    useful: bool,
    *,
    reading_id: str = "",
    comment: str = "",
    request_id: str | None = None,
) -> ProtoMessage:
    """Say whether an answer, or a reading it recommended, was useful."""
    verdict = (
        orchestrator.FEEDBACK_VERDICT_USEFUL if useful else orchestrator.FEEDBACK_VERDICT_NOT_USEFUL
    )
    return orchestrator.SubmitFeedbackRequest(
        run_id=run_id,
        feedback=orchestrator.Feedback(verdict=verdict, reading_id=reading_id, comment=comment),
        request_id=request_id or new_request_id(),
    )


# Through the orchestrator, which keeps runs and session checkpoints that memory does not know of.
@operation("orchestrator", "EraseUser", orchestrator.EraseUserResponse)
def erase_user(user_id: str, *, request_id: str | None = None) -> ProtoMessage:
    """Forget a user: runs, checkpoints, turns, facts, notes, summaries, vectors, queued work."""
    return orchestrator.EraseUserRequest(user_id=user_id, request_id=request_id or new_request_id())


@operation("orchestrator", "EraseSession", orchestrator.EraseSessionResponse)
def erase_session(user_id: str, session_id: str, *, request_id: str | None = None) -> ProtoMessage:
    """Forget one session and what was derived from it."""
    return orchestrator.EraseSessionRequest(
        user_id=user_id, session_id=session_id, request_id=request_id or new_request_id()
    )
