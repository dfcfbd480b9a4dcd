"""One valid request for every RPC of the contract, over a given set of ids.

Tests that must hold for all RPCs (isolation, keys, bad input, repeated requests) take theirs from
here. A new RPC without an entry fails those tests, so it cannot be forgotten.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.message import Message

from nianlun.embedder.v1 import embedder_pb2 as e
from nianlun.memory.v1 import memory_pb2 as m
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from nianlun.retriever.v1 import retriever_pb2 as r


@dataclass(frozen=True)
class Ids:
    """What requests are about.

    Stored texts hold `marker` and `secret`; questions hold the marker only, and ids neither. So a
    secret in an answer was read from storage, never echoed from the question.
    """

    marker: str = "邮票"
    secret: str = "S0"
    user_id: str = "user"
    session_id: str = "session"
    turn_id: str = "00000000-0000-7000-8000-000000000001"
    fact_id: str = "00000000-0000-7000-8000-000000000002"
    attribute: str = "hobby"
    episode_id: str = "00000000-0000-7000-8000-000000000003"
    reading_document_id: str = "reading-1"
    memory_job_id: str = "00000000-0000-7000-8000-000000000004"
    retriever_job_id: str = "00000000-0000-7000-8000-000000000005"
    collection_id: str = "notes"
    document_id: str = "doc-1"
    run_id: str = "00000000-0000-7000-8000-000000000006"

    @property
    def content(self) -> str:
        """What is stored."""
        return f"{self.marker} {self.secret}"

    def stranger(self, user_id: str | None = None) -> Ids:
        """The same things asked for by somebody who does not know the secret."""
        return replace(self, secret="nothing", user_id=user_id or self.user_id)


def new_id() -> str:
    """A request id."""
    return uuid.uuid4().hex


def _text(ids: Ids) -> str:
    return f"我的爱好是收集{ids.content}"


def _chat_input(ids: Ids) -> o.ChatInput:
    return o.ChatInput(
        user_id=ids.user_id,
        session_id=ids.session_id,
        message="我的爱好是什么？",
        scope=o.Scope(collection_id=ids.collection_id),
    )


def _job(request: Any, job_id: str) -> Message:
    message: Message = request(job_id=job_id)
    if "request_id" in message.DESCRIPTOR.fields_by_name:
        message.request_id = new_id()  # type: ignore[attr-defined]
    return message


def _user(request: Any, **fields: Any) -> Callable[[Ids], Message]:
    """A request that names a user, some further ids, and a request_id where it has one."""

    def build(ids: Ids) -> Message:
        message: Message = request(user_id=ids.user_id)
        for name, value in fields.items():
            setattr(message, name, getattr(ids, value[1:]) if _is_ref(value) else value)
        if "request_id" in message.DESCRIPTOR.fields_by_name:
            message.request_id = new_id()  # type: ignore[attr-defined]
        return message

    return build


def _is_ref(value: object) -> bool:
    return isinstance(value, str) and value.startswith("@")


def _collection(request: Any, **fields: Any) -> Callable[[Ids], Message]:
    def build(ids: Ids) -> Message:
        message: Message = request(collection_id=ids.collection_id)
        for name, value in fields.items():
            setattr(message, name, getattr(ids, value[1:]) if _is_ref(value) else value)
        if "request_id" in message.DESCRIPTOR.fields_by_name:
            message.request_id = new_id()  # type: ignore[attr-defined]
        return message

    return build


def _append(ids: Ids) -> Message:
    return m.AppendTurnRequest(
        request_id=new_id(),
        user_id=ids.user_id,
        session_id=ids.session_id,
        messages=[
            m.Message(role=m.ROLE_USER, text=_text(ids)),
            m.Message(role=m.ROLE_ASSISTANT, text="好的。"),
        ],
    )


def _upsert(ids: Ids) -> Message:
    text = f"# 收藏\n\n{ids.content} 发行于一九八零年，图案是年轮。"
    document = r.DocumentInput(
        document_id=ids.document_id, content_type=r.CONTENT_TYPE_MARKDOWN, text=text
    )
    return r.UpsertDocumentsRequest(
        request_id=new_id(), collection_id=ids.collection_id, documents=[document]
    )


_EMBEDDER: dict[str, Callable[[Ids], Message]] = {
    "Embed": lambda ids: e.EmbedRequest(texts=[_text(ids)], input_type=e.INPUT_TYPE_DOCUMENT),
    "Rerank": lambda ids: e.RerankRequest(query="爱好", documents=[_text(ids), "天气很好"]),
    "ListModels": lambda ids: e.ListModelsRequest(),
}

_RETRIEVER: dict[str, Callable[[Ids], Message]] = {
    "CreateCollection": _collection(r.CreateCollectionRequest, description="@content"),
    "GetCollection": _collection(r.GetCollectionRequest),
    "ListCollections": lambda ids: r.ListCollectionsRequest(),
    "UpdateCollection": _collection(r.UpdateCollectionRequest, display_name="邮票"),
    "DeleteCollection": _collection(r.DeleteCollectionRequest),
    "UpsertDocuments": _upsert,
    "GetDocument": _collection(r.GetDocumentRequest, document_id="@document_id", include_text=True),
    "ListDocuments": _collection(r.ListDocumentsRequest),
    "DeleteDocuments": lambda ids: r.DeleteDocumentsRequest(
        request_id=new_id(), collection_id=ids.collection_id, document_ids=[ids.document_id]
    ),
    "OpenDocumentPart": _collection(r.OpenDocumentPartRequest, document_id="@document_id"),
    "Search": lambda ids: r.SearchRequest(
        query=ids.marker, scopes=[r.SearchScope(collection_id=ids.collection_id)]
    ),
    "ListRecipes": lambda ids: r.ListRecipesRequest(),
    "StartReembed": _collection(r.StartReembedRequest, model_id="another-model"),
    "SwitchEmbedding": _collection(r.SwitchEmbeddingRequest, model_id="another-model"),
    "BackfillEmbeddings": _collection(r.BackfillEmbeddingsRequest),
    "Calibrate": _collection(r.CalibrateRequest),
    "GetCalibration": lambda ids: r.GetCalibrationRequest(),
    "GetJob": lambda ids: _job(r.GetJobRequest, ids.retriever_job_id),
    "ListJobs": lambda ids: r.ListJobsRequest(),
    "CancelJob": lambda ids: _job(r.CancelJobRequest, ids.retriever_job_id),
    "ReplayJob": lambda ids: _job(r.ReplayJobRequest, ids.retriever_job_id),
    "WatchJob": lambda ids: _job(r.WatchJobRequest, ids.retriever_job_id),
}

_MEMORY: dict[str, Callable[[Ids], Message]] = {
    "AppendTurn": _append,
    "ListTurns": _user(m.ListTurnsRequest),
    "SearchTurns": _user(m.SearchTurnsRequest, query="@marker"),
    "DeleteTurn": _user(m.DeleteTurnRequest, turn_id="@turn_id"),
    "LoadMemory": _user(m.LoadMemoryRequest, session_id="@session_id", query="@marker"),
    "GetPosition": _user(m.GetPositionRequest),
    "EndSession": _user(m.EndSessionRequest, session_id="@session_id"),
    "ListSessions": _user(m.ListSessionsRequest),
    "ListUsers": lambda ids: m.ListUsersRequest(),
    "ListFacts": _user(m.ListFactsRequest),
    "PutFact": _user(
        m.PutFactRequest, kind=m.FACT_KIND_FACT, attribute="@attribute", value="@content"
    ),
    "CorrectFact": _user(m.CorrectFactRequest, fact_id="@fact_id", value="@content"),
    "RetractFact": _user(m.RetractFactRequest, fact_id="@fact_id"),
    "GetFactHistory": _user(m.GetFactHistoryRequest, attribute="@attribute"),
    "SearchEpisodes": _user(m.SearchEpisodesRequest, query="@marker"),
    "ListEpisodes": _user(m.ListEpisodesRequest),
    "CorrectEpisode": _user(m.CorrectEpisodeRequest, episode_id="@episode_id", note="@content"),
    "DeleteEpisode": _user(m.DeleteEpisodeRequest, episode_id="@episode_id"),
    "GetSummary": _user(m.GetSummaryRequest, session_id="@session_id"),
    "RefreshSummary": _user(m.RefreshSummaryRequest, session_id="@session_id"),
    "RecordReading": _user(
        m.RecordReadingRequest, document_id="@reading_document_id", title="@content"
    ),
    "ListReadings": _user(m.ListReadingsRequest),
    "FindSimilarReadings": _user(m.FindSimilarReadingsRequest, text="@marker"),
    "RecordReadingFeedback": _user(
        m.RecordReadingFeedbackRequest,
        document_id="@reading_document_id",
        verdict=m.READING_VERDICT_USEFUL,
    ),
    "DeleteReading": _user(m.DeleteReadingRequest, document_id="@reading_document_id"),
    "EraseUser": _user(m.EraseUserRequest),
    "EraseSession": _user(m.EraseSessionRequest, session_id="@session_id"),
    "ExportUser": _user(m.ExportUserRequest),
    "ImportUser": lambda ids: m.ImportUserRequest(
        header=m.ImportHeader(request_id=new_id(), user_id=ids.user_id)
    ),
    "GetUsage": lambda ids: m.GetUsageRequest(),
    "GetSettings": lambda ids: m.GetSettingsRequest(),
    "UpdateSettings": lambda ids: m.UpdateSettingsRequest(
        request_id=new_id(), settings=m.Settings(half_life_days=31)
    ),
    "GetJob": lambda ids: _job(m.GetJobRequest, ids.memory_job_id),
    "ListJobs": lambda ids: m.ListJobsRequest(),
    "CancelJob": lambda ids: _job(m.CancelJobRequest, ids.memory_job_id),
    "ReplayJob": lambda ids: _job(m.ReplayJobRequest, ids.memory_job_id),
    "WatchJob": lambda ids: _job(m.WatchJobRequest, ids.memory_job_id),
}

_ORCHESTRATOR: dict[str, Callable[[Ids], Message]] = {
    "BuildContext": lambda ids: o.BuildContextRequest(input=_chat_input(ids)),
    "Chat": lambda ids: o.ChatRequest(input=_chat_input(ids), request_id=new_id()),
    "StreamChat": lambda ids: o.StreamChatRequest(input=_chat_input(ids), request_id=new_id()),
    "GetRun": lambda ids: o.GetRunRequest(run_id=ids.run_id, include_events=True),
    "ListRuns": _user(o.ListRunsRequest),
    "EraseUser": _user(o.EraseUserRequest),
    "EraseSession": _user(o.EraseSessionRequest, session_id="@session_id"),
    "SubmitFeedback": lambda ids: o.SubmitFeedbackRequest(
        request_id=new_id(),
        run_id=ids.run_id,
        feedback=o.Feedback(verdict=o.FEEDBACK_VERDICT_USEFUL),
    ),
}

REQUESTS: dict[str, Callable[[Ids], Message]] = {
    f"{service}.{name}": build
    for service, builders in (
        ("embedder", _EMBEDDER),
        ("retriever", _RETRIEVER),
        ("memory", _MEMORY),
        ("orchestrator", _ORCHESTRATOR),
    )
    for name, build in builders.items()
}

# These change or remove what is there, so they come last where a test calls everything in turn.
DESTRUCTIVE = (
    "memory.DeleteTurn",
    "memory.RetractFact",
    "memory.DeleteEpisode",
    "memory.DeleteReading",
    "memory.EraseSession",
    "memory.EraseUser",
    "orchestrator.EraseSession",
    "orchestrator.EraseUser",
    "retriever.DeleteDocuments",
    "retriever.DeleteCollection",
)
