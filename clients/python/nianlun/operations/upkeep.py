"""Operations of memory on notes, summaries and readings, and on usage and settings."""

from __future__ import annotations

from google.protobuf.message import Message as ProtoMessage

from nianlun.memory.v1 import memory_pb2 as memory
from nianlun.operations.core import operation
from nianlun.values import new_request_id


@operation("memory", "CorrectEpisode", memory.CorrectEpisodeResponse)
def correct_episode(
    user_id: str, episode_id: str, note: str, *, etag: str = "", request_id: str | None = None
) -> ProtoMessage:
    """Replace the text of a note."""
    return memory.CorrectEpisodeRequest(
        request_id=request_id or new_request_id(),
        user_id=user_id,
        episode_id=episode_id,
        note=note,
        etag=etag,
    )


@operation("memory", "DeleteEpisode", memory.DeleteEpisodeResponse)
def delete_episode(
    user_id: str, episode_id: str, *, etag: str = "", request_id: str | None = None
) -> ProtoMessage:
    """Remove a note; it is not made again from the same turns."""
    return memory.DeleteEpisodeRequest(
        request_id=request_id or new_request_id(),
        user_id=user_id,
        episode_id=episode_id,
        etag=etag,
    )


@operation("memory", "RefreshSummary", memory.RefreshSummaryResponse)
def refresh_summary(
    user_id: str, *, session_id: str = "", request_id: str | None = None
) -> ProtoMessage:
    """Make a new version of a session's summary, or of the user's; answers a job."""
    return memory.RefreshSummaryRequest(
        request_id=request_id or new_request_id(), user_id=user_id, session_id=session_id
    )


@operation("memory", "ListReadings", memory.ListReadingsResponse)
def list_readings(user_id: str, *, page_size: int = 0, page_token: str = "") -> ProtoMessage:
    """One page of what a user has read, latest first."""
    return memory.ListReadingsRequest(user_id=user_id, page_size=page_size, page_token=page_token)


@operation("memory", "RecordReadingFeedback", memory.RecordReadingFeedbackResponse)
def reading_feedback(
    user_id: str, document_id: str, useful: bool, *, request_id: str | None = None
) -> ProtoMessage:
    """Say whether a recommended reading was useful; its later weight changes."""
    return memory.RecordReadingFeedbackRequest(
        request_id=request_id or new_request_id(),
        user_id=user_id,
        document_id=document_id,
        verdict=(memory.READING_VERDICT_USEFUL if useful else memory.READING_VERDICT_NOT_USEFUL),
    )


@operation("memory", "DeleteReading", memory.DeleteReadingResponse)
def delete_reading(
    user_id: str, document_id: str, *, request_id: str | None = None
) -> ProtoMessage:
    """Remove one reading with its vector."""
    return memory.DeleteReadingRequest(
        request_id=request_id or new_request_id(), user_id=user_id, document_id=document_id
    )


@operation("memory", "GetUsage", memory.GetUsageResponse)
def get_usage(*, from_day: str = "", to_day: str = "") -> ProtoMessage:
    """Calls, tokens and cost of language models per layer and day (days as YYYY-MM-DD)."""
    return memory.GetUsageRequest(from_day=from_day, to_day=to_day)


@operation("memory", "GetSettings", memory.GetSettingsResponse)
def get_settings() -> ProtoMessage:
    """The tenant's memory settings."""
    return memory.GetSettingsRequest()


@operation("memory", "UpdateSettings", memory.UpdateSettingsResponse)
def update_settings(settings: memory.Settings, *, request_id: str | None = None) -> ProtoMessage:
    """Replace the tenant's memory settings; read them first, change, send back. Scope "admin"."""
    return memory.UpdateSettingsRequest(
        request_id=request_id or new_request_id(), settings=settings
    )
