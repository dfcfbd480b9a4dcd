"""Waiting for background jobs: the parts that both clients share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message as ProtoMessage

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as memory
from nianlun.operations.core import Operation
from nianlun.retriever.v1 import retriever_pb2 as retriever

_ENDED = (
    common_pb2.JOB_STATE_SUCCEEDED,
    common_pb2.JOB_STATE_FAILED,
    common_pb2.JOB_STATE_CANCELLED,
)


class JobFailedError(Exception):
    """A job ended without success, or not in time; ``job`` is its last known state."""

    def __init__(self, job: common_pb2.Job, why: str) -> None:
        super().__init__(why)
        self.job = job


def ended(job: common_pb2.Job) -> bool:
    """Whether the job has reached a final state."""
    return job.state in _ENDED


def check(job: common_pb2.Job) -> common_pb2.Job:
    """An ended job that succeeded.

    Raises:
        JobFailedError: it failed or was cancelled.
    """
    if job.state != common_pb2.JOB_STATE_SUCCEEDED:
        state = common_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
        raise JobFailedError(job, f"job {job.job_id} ({job.kind}) {state}: {job.error.message}")
    return job


def late(job: common_pb2.Job, timeout_s: float) -> JobFailedError:
    """What to raise when a job has not ended in time; the job itself goes on."""
    return JobFailedError(
        job, f"job {job.job_id} ({job.kind}) has not ended after {timeout_s:.0f} s; it goes on"
    )


def pauses() -> Iterator[float]:
    """Seconds between looks at a job: quick at first, then twice a second."""
    pause = 0.05
    while True:
        yield pause
        pause = min(pause * 1.5, 0.5)


def job_of(answer: ProtoMessage) -> common_pb2.Job:
    """The job in an answer.

    Raises:
        ValueError: the answer has none.
    """
    job = getattr(answer, "job", None)
    if not isinstance(job, common_pb2.Job) or not job.job_id:
        raise ValueError(f"{type(answer).__name__} carries no job")
    return job


def get_job(answer: ProtoMessage) -> Operation[[str], Any]:
    """How to look at the job in an answer again: on the service that gave the answer."""
    package = answer.DESCRIPTOR.file.package
    if package == "nianlun.retriever.v1":
        return Operation("retriever", "GetJob", _retriever_job, retriever.GetJobResponse)
    if package == "nianlun.memory.v1":
        return Operation("memory", "GetJob", _memory_job, memory.GetJobResponse)
    raise ValueError(f"{package} has no jobs")


def _retriever_job(job_id: str) -> ProtoMessage:
    return retriever.GetJobRequest(job_id=job_id)


def _memory_job(job_id: str) -> ProtoMessage:
    return memory.GetJobRequest(job_id=job_id)
