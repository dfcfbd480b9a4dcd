"""Operations of memory: turns, loading, profile, episodes, readings, forgetting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from google.protobuf.message import Message as ProtoMessage

from nianlun.memory.v1 import memory_pb2 as memory
from nianlun.operations.core import operation
from nianlun.values import Plain, new_request_id, timestamp, value_map


@operation("memory", "AppendTurn", memory.AppendTurnResponse)
def append_turn(
    user_id: str,
    session_id: str,
    messages: Sequence[memory.Message] | str,
    *,
    event_time: datetime | None = None,
    time_zone: str = "",
    metadata: Mapping[str, Plain] | None = None,
    request_id: str | None = None,
) -> ProtoMessage:
    """Store one turn; what it says is visible to the next ``load_memory`` at once.

    ``messages`` may be a plain string: then it is what the user said.
    """
    return memory.AppendTurnRequest(
        request_id=request_id or new_request_id(),
        user_id=user_id,
        session_id=session_id,
        messages=[user_message(messages)] if isinstance(messages, str) else messages,
        event_time=timestamp(event_time),
        time_zone=time_zone,
        metadata=value_map(metadata),
    )


@operation("memory", "LoadMemory", memory.LoadMemoryResponse)
def load_memory(
    user_id: str,
    query: str = "",
    *,
    session_id: str = "",
    budget_tokens: int = 0,
    at_least: str = "",
    as_of: datetime | None = None,
    layers: memory.Layers | None = None,
    max_episodes: int = 0,
    exclude_session: bool = False,
    time_zone: str = "",
    current_document_id: str = "",
) -> ProtoMessage:
    """What is known about a user that helps with ``query``, within a token budget."""
    return memory.LoadMemoryRequest(
        user_id=user_id,
        session_id=session_id,
        query=query,
        budget_tokens=budget_tokens,
        at_least=at_least,
        as_of=timestamp(as_of),
        layers=layers,
        max_episodes=max_episodes,
        exclude_session=exclude_session,
        time_zone=time_zone,
        current_document_id=current_document_id,
    )


@operation("memory", "EndSession", memory.EndSessionResponse)
def end_session(user_id: str, session_id: str, *, request_id: str | None = None) -> ProtoMessage:
    """End a session: what is left of it is digested and summarised in a job."""
    return memory.EndSessionRequest(
        request_id=request_id or new_request_id(), user_id=user_id, session_id=session_id
    )


@operation("memory", "ListFacts", memory.ListFactsResponse)
def list_facts(
    user_id: str,
    *,
    kind: memory.FactKind.ValueType = memory.FACT_KIND_UNSPECIFIED,
    attribute: str = "",
    as_of: datetime | None = None,
    known_at: datetime | None = None,
    page_size: int = 0,
    page_token: str = "",
) -> ProtoMessage:
    """One page of a user's profile: what held at ``as_of``, as it was known at ``known_at``."""
    return memory.ListFactsRequest(
        user_id=user_id,
        kind=kind,
        attribute=attribute,
        as_of=timestamp(as_of),
        known_at=timestamp(known_at),
        page_size=page_size,
        page_token=page_token,
    )


@operation("memory", "PutFact", memory.PutFactResponse)
def put_fact(
    user_id: str,
    attribute: str,
    value: str,
    *,
    statement: str = "",
    kind: memory.FactKind.ValueType = memory.FACT_KIND_FACT,
    cardinality: memory.Cardinality.ValueType = memory.CARDINALITY_UNSPECIFIED,
    valid_from: datetime | None = None,
    request_id: str | None = None,
) -> ProtoMessage:
    """State a fact or a preference directly."""
    return memory.PutFactRequest(
        request_id=request_id or new_request_id(),
        user_id=user_id,
        kind=kind,
        attribute=attribute,
        value=value,
        statement=statement,
        cardinality=cardinality,
        valid_from=timestamp(valid_from),
    )


@operation("memory", "CorrectFact", memory.CorrectFactResponse)
def correct_fact(
    user_id: str,
    fact_id: str,
    value: str,
    *,
    statement: str = "",
    etag: str = "",
    request_id: str | None = None,
) -> ProtoMessage:
    """Replace a fact that was never right; extraction will not bring the old one back."""
    return memory.CorrectFactRequest(
        request_id=request_id or new_request_id(),
        user_id=user_id,
        fact_id=fact_id,
        value=value,
        statement=statement,
        etag=etag,
    )


@operation("memory", "RetractFact", memory.RetractFactResponse)
def retract_fact(
    user_id: str,
    fact_id: str,
    *,
    purge: bool = False,
    etag: str = "",
    request_id: str | None = None,
) -> ProtoMessage:
    """Take a fact back; ``purge`` removes it and what was derived from it, with a receipt."""
    return memory.RetractFactRequest(
        request_id=request_id or new_request_id(),
        user_id=user_id,
        fact_id=fact_id,
        purge=purge,
        etag=etag,
    )


@operation("memory", "GetFactHistory", memory.GetFactHistoryResponse)
def fact_history(
    user_id: str, attribute: str, *, page_size: int = 0, page_token: str = ""
) -> ProtoMessage:
    """All that was ever recorded for one attribute."""
    return memory.GetFactHistoryRequest(
        user_id=user_id, attribute=attribute, page_size=page_size, page_token=page_token
    )


@operation("memory", "SearchEpisodes", memory.SearchEpisodesResponse)
def search_episodes(
    user_id: str,
    query: str,
    *,
    top_k: int = 0,
    session_id: str = "",
    exclude_session_id: str = "",
    from_time: datetime | None = None,
    to_time: datetime | None = None,
    ungated: bool = False,
) -> ProtoMessage:
    """Notes on earlier conversations that bear on ``query``."""
    return memory.SearchEpisodesRequest(
        user_id=user_id,
        query=query,
        top_k=top_k,
        session_id=session_id,
        exclude_session_id=exclude_session_id,
        from_time=timestamp(from_time),
        to_time=timestamp(to_time),
        ungated=ungated,
    )


@operation("memory", "ListEpisodes", memory.ListEpisodesResponse)
def list_episodes(
    user_id: str, *, session_id: str = "", page_size: int = 0, page_token: str = ""
) -> ProtoMessage:
    """One page of the notes on a user's conversations."""
    return memory.ListEpisodesRequest(
        user_id=user_id, session_id=session_id, page_size=page_size, page_token=page_token
    )


@operation("memory", "GetSummary", memory.GetSummaryResponse)
def get_summary(user_id: str, *, session_id: str = "") -> ProtoMessage:
    """The summary of a session, or of the user where no session is named."""
    return memory.GetSummaryRequest(user_id=user_id, session_id=session_id)


@operation("memory", "RecordReading", memory.RecordReadingResponse)
def record_reading(
    user_id: str,
    document_id: str,
    *,
    title: str = "",
    summary: str = "",
    read_time: datetime | None = None,
    metadata: Mapping[str, Plain] | None = None,
    request_id: str | None = None,
) -> ProtoMessage:
    """Note that a user has read a document; one row per user and document."""
    return memory.RecordReadingRequest(
        request_id=request_id or new_request_id(),
        user_id=user_id,
        document_id=document_id,
        title=title,
        summary=summary,
        read_time=timestamp(read_time),
        metadata=value_map(metadata),
    )


@operation("memory", "FindSimilarReadings", memory.FindSimilarReadingsResponse)
def similar_readings(
    user_id: str, *, document_id: str = "", text: str = "", top_k: int = 0
) -> ProtoMessage:
    """Earlier readings close to a document or a text, without the document itself."""
    return memory.FindSimilarReadingsRequest(
        user_id=user_id, document_id=document_id, text=text, top_k=top_k
    )


def user_message(text: str, *, speaker: str = "") -> memory.Message:
    """What the user said."""
    return memory.Message(role=memory.ROLE_USER, text=text, speaker=speaker)


def assistant_message(text: str, *, speaker: str = "") -> memory.Message:
    """What the assistant answered; never mined for facts about the user."""
    return memory.Message(role=memory.ROLE_ASSISTANT, text=text, speaker=speaker)
