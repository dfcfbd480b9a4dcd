"""Operations of memory on what was said: turns, sessions, users."""

from __future__ import annotations

from datetime import datetime

from google.protobuf.message import Message as ProtoMessage

from nianlun.memory.v1 import memory_pb2 as memory
from nianlun.operations.core import operation
from nianlun.values import new_request_id, timestamp


@operation("memory", "ListTurns", memory.ListTurnsResponse)
def list_turns(
    user_id: str,
    *,
    session_id: str = "",
    undigested_only: bool = False,
    page_size: int = 0,
    page_token: str = "",
) -> ProtoMessage:
    """One page of the turns of a user, newest first."""
    return memory.ListTurnsRequest(
        user_id=user_id,
        session_id=session_id,
        undigested_only=undigested_only,
        page_size=page_size,
        page_token=page_token,
    )


@operation("memory", "SearchTurns", memory.SearchTurnsResponse)
def search_turns(
    user_id: str,
    query: str,
    *,
    session_id: str = "",
    exclude_session_id: str = "",
    top_k: int = 0,
    from_time: datetime | None = None,
    to_time: datetime | None = None,
) -> ProtoMessage:
    """Find what was said, word for word, by words, phrases and meaning."""
    return memory.SearchTurnsRequest(
        user_id=user_id,
        query=query,
        session_id=session_id,
        exclude_session_id=exclude_session_id,
        top_k=top_k,
        from_time=timestamp(from_time),
        to_time=timestamp(to_time),
    )


@operation("memory", "DeleteTurn", memory.DeleteTurnResponse)
def delete_turn(user_id: str, turn_id: str, *, request_id: str | None = None) -> ProtoMessage:
    """Remove a turn and everything that rests on it alone, with a receipt."""
    return memory.DeleteTurnRequest(
        request_id=request_id or new_request_id(), user_id=user_id, turn_id=turn_id
    )


@operation("memory", "GetPosition", memory.GetPositionResponse)
def get_position(user_id: str) -> ProtoMessage:
    """The position of the newest acknowledged turn, for ``at_least`` of ``load_memory``."""
    return memory.GetPositionRequest(user_id=user_id)


@operation("memory", "ListSessions", memory.ListSessionsResponse)
def list_sessions(user_id: str, *, page_size: int = 0, page_token: str = "") -> ProtoMessage:
    """One page of a user's sessions, most recently active first."""
    return memory.ListSessionsRequest(user_id=user_id, page_size=page_size, page_token=page_token)


@operation("memory", "ListUsers", memory.ListUsersResponse)
def list_users(*, page_size: int = 0, page_token: str = "") -> ProtoMessage:
    """One page of the tenant's users, by id. Needs scope "admin"."""
    return memory.ListUsersRequest(page_size=page_size, page_token=page_token)


# Memory's own: they leave what the orchestrator keeps (runs, session histories). Where users chat
# through the orchestrator, ``erase_user`` and ``erase_session`` are the ones to call.
@operation("memory", "EraseUser", memory.EraseUserResponse)
def erase_user_memory(user_id: str, *, request_id: str | None = None) -> ProtoMessage:
    """Forget a user in the memory service alone, with a receipt."""
    return memory.EraseUserRequest(request_id=request_id or new_request_id(), user_id=user_id)


@operation("memory", "EraseSession", memory.EraseSessionResponse)
def erase_session_memory(
    user_id: str, session_id: str, *, request_id: str | None = None
) -> ProtoMessage:
    """Forget one session in the memory service alone, with a receipt."""
    return memory.EraseSessionRequest(
        request_id=request_id or new_request_id(), user_id=user_id, session_id=session_id
    )
