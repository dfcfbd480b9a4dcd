"""Values of background work: the status row, its states, and what handlers raise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nianlun.common.v1 import common_pb2
from services.common.db import Connection
from services.common.status import item_error

if TYPE_CHECKING:
    from services.common.jobs.attempt import JobRun

Handler = Callable[["JobRun"], Awaitable[Mapping[str, str] | None]]
"""Does the work of one kind of job and returns its result (counts and ids). Must be idempotent."""

Forget = Callable[[Connection, Mapping[str, str]], Awaitable[None]]
"""Removes what was kept for a job of this subject, when the job itself is removed."""
OnFailed = Callable[[Connection, "JobRecord"], Awaitable[None]]
"""Writes down what it means that a job has ended as failed, in the transaction that ends it."""

TASK = "nianlun.run"
TERMINAL = frozenset({"succeeded", "failed", "cancelled"})
MAX_ITEM_ERRORS = 100
MAX_MESSAGE_CHARS = 500

STATES: dict[str, common_pb2.JobState.ValueType] = {
    "queued": common_pb2.JOB_STATE_QUEUED,
    "running": common_pb2.JOB_STATE_RUNNING,
    "retrying": common_pb2.JOB_STATE_RETRYING,
    "succeeded": common_pb2.JOB_STATE_SUCCEEDED,
    "failed": common_pb2.JOB_STATE_FAILED,
    "cancelled": common_pb2.JOB_STATE_CANCELLED,
}
STATE_NAMES: dict[int, str] = {int(number): name for name, number in STATES.items()}


class Retry(Exception):
    """Try again later; never ends the job within the retry window (a day). Messages hold no text
    of users."""

    def __init__(
        self,
        reason: str = "DEPENDENCY_UNAVAILABLE",
        after_s: float | None = None,
        message: str = "",
    ) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.after_s = after_s
        self.message = message[:MAX_MESSAGE_CHARS]


class Quarantine(Exception):
    """End the job as FAILED now, with a reason; it can be listed and replayed."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message[:MAX_MESSAGE_CHARS]


class JobCancelled(Exception):
    """A handler that saw ``cancelled()`` stops by raising this."""


class LeaseLost(Exception):
    """Another worker has taken this job over; whatever this attempt would write is void."""


@dataclass(frozen=True)
class JobRecord:
    """A status row."""

    tenant_id: str
    job_id: str
    kind: str
    state: str
    subject: Mapping[str, str]
    lock: str | None
    done: int
    total: int
    unit: str
    attempts: int
    failures: int
    error_reason: str | None
    error_message: str | None
    item_errors: list[dict[str, str]]
    result: Mapping[str, str]
    cancel_requested: bool
    queue_id: int | None
    create_time: datetime
    update_time: datetime
    first_failure_time: datetime | None
    next_attempt_time: datetime | None
    end_time: datetime | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> JobRecord:
        """A record of a row with this class's columns."""
        values = {name: row[name] for name in cls.__dataclass_fields__}
        return cls(**{**values, "job_id": str(row["job_id"])})

    @property
    def ended(self) -> bool:
        """True in a state from which only a replay leads away."""
        return self.state in TERMINAL

    def message(self) -> common_pb2.Job:
        """The API's form."""
        job = common_pb2.Job(
            job_id=self.job_id,
            kind=self.kind,
            state=STATES[self.state],
            done=self.done,
            total=self.total,
            unit=self.unit,
            attempts=self.attempts,
            subject=self.subject,
            result=self.result,
            item_errors=[
                common_pb2.JobItemError(
                    item_id=item["item_id"], error=item_error(item["reason"], item["message"])
                )
                for item in self.item_errors
            ],
        )
        if self.error_reason:
            job.error.CopyFrom(item_error(self.error_reason, self.error_message or ""))
        job.create_time.FromDatetime(self.create_time)
        job.update_time.FromDatetime(self.update_time)
        if self.end_time is not None:
            job.end_time.FromDatetime(self.end_time)
        if self.next_attempt_time is not None and self.state in ("retrying", "queued"):
            job.next_attempt_time.FromDatetime(self.next_attempt_time)
        return job


@dataclass(frozen=True)
class Outcome:
    """How a failed attempt goes on. ``retryable`` failures do not count towards the limit."""

    reason: str
    message: str
    retryable: bool
    terminal: bool = False
    after_s: float | None = None
