"""Operations on the background jobs of the two services that have them, and their streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from google.protobuf.message import Message as ProtoMessage

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as memory
from nianlun.operations.core import operation
from nianlun.retriever.v1 import retriever_pb2 as retriever
from nianlun.values import new_request_id

_IMPORT_BYTES = 1_000_000


@operation("memory", "GetJob", memory.GetJobResponse)
def get_memory_job(job_id: str) -> ProtoMessage:
    """One job of the memory service."""
    return memory.GetJobRequest(job_id=job_id)


@operation("memory", "ListJobs", memory.ListJobsResponse)
def list_memory_jobs(
    *,
    states: Sequence[common_pb2.JobState.ValueType] = (),
    kind: str = "",
    page_size: int = 0,
    page_token: str = "",
) -> ProtoMessage:
    """One page of the memory service's jobs, newest first; state FAILED are the dead letters."""
    return memory.ListJobsRequest(
        states=states, kind=kind, page_size=page_size, page_token=page_token
    )


@operation("memory", "CancelJob", memory.CancelJobResponse)
def cancel_memory_job(job_id: str, *, request_id: str | None = None) -> ProtoMessage:
    """Stop a job of the memory service; one that has ended is given back unchanged."""
    return memory.CancelJobRequest(job_id=job_id, request_id=request_id or new_request_id())


@operation("memory", "ReplayJob", memory.ReplayJobResponse)
def replay_memory_job(job_id: str, *, request_id: str | None = None) -> ProtoMessage:
    """Queue a failed or cancelled job of the memory service again."""
    return memory.ReplayJobRequest(job_id=job_id, request_id=request_id or new_request_id())


@operation("retriever", "GetJob", retriever.GetJobResponse)
def get_retriever_job(job_id: str) -> ProtoMessage:
    """One job of the retriever service."""
    return retriever.GetJobRequest(job_id=job_id)


@operation("retriever", "ListJobs", retriever.ListJobsResponse)
def list_retriever_jobs(
    *,
    states: Sequence[common_pb2.JobState.ValueType] = (),
    kind: str = "",
    page_size: int = 0,
    page_token: str = "",
) -> ProtoMessage:
    """One page of the retriever service's jobs, newest first; state FAILED are the dead letters."""
    return retriever.ListJobsRequest(
        states=states, kind=kind, page_size=page_size, page_token=page_token
    )


@operation("retriever", "CancelJob", retriever.CancelJobResponse)
def cancel_retriever_job(job_id: str, *, request_id: str | None = None) -> ProtoMessage:
    """Stop a job of the retriever service; one that has ended is given back unchanged."""
    return retriever.CancelJobRequest(job_id=job_id, request_id=request_id or new_request_id())


@operation("retriever", "ReplayJob", retriever.ReplayJobResponse)
def replay_retriever_job(job_id: str, *, request_id: str | None = None) -> ProtoMessage:
    """Queue a failed or cancelled job of the retriever service again."""
    return retriever.ReplayJobRequest(job_id=job_id, request_id=request_id or new_request_id())


def import_messages(
    user_id: str, lines: Iterable[str], request_id: str | None = None
) -> Iterator[memory.ImportUserRequest]:
    """The messages of an import: the header, then the lines of an export in bounded pieces."""
    header = memory.ImportHeader(request_id=request_id or new_request_id(), user_id=user_id)
    yield memory.ImportUserRequest(header=header)
    piece: list[str] = []
    size = 0
    for line in lines:
        length = len(line.encode("utf-8", "replace"))
        if piece and size + length > _IMPORT_BYTES:
            yield memory.ImportUserRequest(lines=memory.ImportLines(lines=piece))
            piece, size = [], 0
        piece.append(line)
        size += length
    if piece:
        yield memory.ImportUserRequest(lines=memory.ImportLines(lines=piece))
