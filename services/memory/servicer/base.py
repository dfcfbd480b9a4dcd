"""What every group of RPCs needs: who calls, the stored answers, common checks."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as pb
from services.common import context, errors, validate
from services.common.db import Connection
from services.common.idempotency import replay_or_run
from services.common.jobs.store import JobStore
from services.memory import convert, recall, timex
from services.memory.deps import SCHEMA, Deps
from services.memory.vectors import Question

M = TypeVar("M", bound=Message)
FUTURE_SLACK = timedelta(minutes=5)
MAX_PAGE = 200
MAX_QUERY_CHARS = 4_000
DEFAULT_PAGE = 50


def tenant() -> str:
    """The caller's tenant."""
    return context.current_caller().tenant_id


@dataclass(frozen=True)
class Rpcs:
    """Base of the groups: dependencies and nothing else."""

    deps: Deps

    async def write(
        self,
        request: Message,
        response_type: type[M],
        run: Callable[[Connection], Awaitable[M]],
        subject: str,
    ) -> M:
        """Run a write once per request_id, in one tenant transaction."""
        async with self.deps.db.tenant() as conn:
            response = await replay_or_run(
                conn, SCHEMA, request, response_type, lambda: run(conn), subject=subject
            )
        self.deps.wake()
        return response

    async def query_vector(
        self, query: str, layer: str
    ) -> tuple[Question | None, list[common_pb2.Degradation]]:
        """(question, degradations); None while the embedder is away, which is a degradation of
        `layer`."""
        try:
            return await self.deps.embedder.query(query[:MAX_QUERY_CHARS]), []
        except errors.DomainError as error:
            message = f"No query vector: {error.reason}."
            return None, [convert.degradation("dense", layer, message)]

    def past(self, field: str, value: Timestamp | None) -> datetime | None:
        """An instant that is not in the future; None when unset."""
        moment = validate.timestamp(field, value)
        if moment is not None and moment > self.deps.now() + FUTURE_SLACK:
            raise errors.invalid_argument(field, "must not be in the future")
        return moment

    def event_time(self, field: str, value: Timestamp | None) -> datetime:
        """When something was said: default now, at most 5 minutes ahead, not before 1970."""
        moment = self.past(field, value)
        if moment is not None and moment < datetime(1970, 1, 1, tzinfo=UTC):
            raise errors.invalid_argument(field, "must not be before 1970")
        return moment or self.deps.now()


def pending(layer: str, count: int) -> list[common_pb2.Degradation]:
    """That items of a layer could be found by words only; nothing where all have vectors."""
    if not count:
        return []
    return [convert.degradation("pending", layer, f"{count} {layer} have no vector yet.")]


def optional(message: Message, field: str) -> Timestamp | None:
    """A timestamp field, None when it is unset."""
    value: Timestamp = getattr(message, field)
    return value if message.HasField(field) else None


def user(value: str) -> str:
    """A user_id."""
    return validate.ident("user_id", value)


def session(value: str) -> str:
    """A required session_id."""
    return validate.ident("session_id", value)


def optional_ident(field: str, value: str) -> str:
    """An id that may be empty."""
    return validate.ident(field, value) if value else ""


def uuid_of(field: str, value: str, kind: str) -> str:
    """A server-made id; one that cannot exist is NOT_FOUND, an empty one INVALID_ARGUMENT."""
    text = validate.ident(field, value)
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise errors.not_found(kind, text) from None


def time_zone(field: str, value: str, default: str) -> str:
    """An IANA zone name; unknown ones are INVALID_ARGUMENT."""
    if not value:
        return default
    if len(value) > 64 or timex.zone_of(value) is None:
        raise errors.invalid_argument(field, "is not a known time zone")
    return value


def scope_of(request: pb.SearchTurnsRequest | pb.SearchEpisodesRequest) -> recall.Scope:
    """Sessions and times of a search; to_time must be later than from_time."""
    only = optional_ident("session_id", request.session_id)
    without = optional_ident("exclude_session_id", request.exclude_session_id)
    if only and only == without:
        raise errors.invalid_argument("exclude_session_id", "must differ from session_id")
    start = validate.timestamp("from_time", optional(request, "from_time"))
    end = validate.timestamp("to_time", optional(request, "to_time"))
    if start is not None and end is not None and end <= start:
        raise errors.invalid_argument("to_time", "must be after from_time")
    return recall.Scope(only, without, start, end)


async def job_of(conn: Connection, job_id: str) -> common_pb2.Job:
    """A job as this transaction sees it."""
    found = await JobStore(SCHEMA).get(conn, job_id)
    return found.message() if found is not None else common_pb2.Job(job_id=job_id)


def number_or(field: str, value: int, default: int, low: int, high: int) -> int:
    """A bounded whole number, 0 meaning the default."""
    return default if value == 0 else int(validate.number(field, value, low, high))
