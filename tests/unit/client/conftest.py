"""A real gRPC server with scripted services, for tests of the clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2, memory_pb2_grpc
from nianlun.orchestrator.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from nianlun.retriever.v1 import retriever_pb2, retriever_pb2_grpc


@dataclass
class Seen:
    """What the server saw."""

    metadata: list[dict[str, str]] = field(default_factory=list)
    remaining_s: list[float] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    unavailable_first: int = 0
    stream_cancelled: threading.Event = field(default_factory=threading.Event)
    hold: threading.Event = field(default_factory=threading.Event)
    job_looks: int = 0
    job_end: Any = common_pb2.JOB_STATE_SUCCEEDED

    def note(self, request: Any, context: grpc.ServicerContext) -> None:
        """Keep one call."""
        self.requests.append(request)
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
        self.remaining_s.append(context.time_remaining() or 0.0)


class _Memory(memory_pb2_grpc.MemoryServiceServicer):
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def AppendTurn(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._seen.note(request, context)
        if self._seen.unavailable_first > 0:
            self._seen.unavailable_first -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return memory_pb2.AppendTurnResponse(turn_id="t1", position="p1")

    def PutFact(self, request: Any, context: grpc.ServicerContext) -> Any:
        status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message="unusable fields")
        details = (
            error_details_pb2.ErrorInfo(
                reason="INVALID_ARGUMENT", domain="nianlun.io", metadata={"limit": "5"}
            ),
            error_details_pb2.BadRequest(
                field_violations=[
                    error_details_pb2.BadRequest.FieldViolation(
                        field="attribute", description="is too long"
                    )
                ]
            ),
            error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=2)),
        )
        for detail in details:
            status.details.add().Pack(detail)
        context.abort_with_status(rpc_status.to_status(status))

    def EndSession(self, request: Any, context: grpc.ServicerContext) -> Any:
        job = common_pb2.Job(job_id="j1", kind="digest", state=common_pb2.JOB_STATE_QUEUED)
        return memory_pb2.EndSessionResponse(job=job)

    def GetJob(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._seen.job_looks += 1
        ended = self._seen.job_looks >= 3
        state = self._seen.job_end if ended else common_pb2.JOB_STATE_RUNNING
        error = common_pb2.ItemError(message="the model is gone")
        return memory_pb2.GetJobResponse(
            job=common_pb2.Job(job_id=request.job_id, kind="digest", state=state, error=error)
        )


class _Retriever(retriever_pb2_grpc.RetrieverServiceServicer):
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def Search(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._seen.note(request, context)
        self._seen.hold.wait(5.0)
        return retriever_pb2.SearchResponse(confidence=retriever_pb2.CONFIDENCE_NONE)

    def GetCollection(self, request: Any, context: grpc.ServicerContext) -> Any:
        context.abort(grpc.StatusCode.NOT_FOUND, "no such collection")


class _Orchestrator(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def Chat(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._seen.note(request, context)
        return orchestrator_pb2.ChatResponse(run_id="r1")

    def BuildContext(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._seen.note(request, context)
        return orchestrator_pb2.BuildContextResponse()

    def StreamChat(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._seen.note(request, context)
        context.add_callback(self._seen.stream_cancelled.set)
        for text in ("年", "轮"):
            event = orchestrator_pb2.ChatEvent(text_delta=orchestrator_pb2.TextDelta(text=text))
            yield orchestrator_pb2.StreamChatResponse(event=event)
        if request.input.message == "endless":
            while context.is_active():
                self._seen.stream_cancelled.wait(0.05)
            return
        response = orchestrator_pb2.ChatResponse(run_id="r1")
        completed = orchestrator_pb2.Completed(
            state=orchestrator_pb2.RUN_STATE_COMPLETED, response=response
        )
        if request.input.message == "doomed":
            completed = orchestrator_pb2.Completed(
                state=orchestrator_pb2.RUN_STATE_FAILED,
                error=common_pb2.ItemError(
                    reason=common_pb2.ERROR_REASON_MODEL_FAILED, message="no JSON came"
                ),
            )
        yield orchestrator_pb2.StreamChatResponse(
            event=orchestrator_pb2.ChatEvent(run_id="r1", completed=completed)
        )


@pytest.fixture
def seen() -> Seen:
    """What the server of this test saw; where `hold` is cleared, it does not answer searches."""
    fresh = Seen()
    fresh.hold.set()
    return fresh


@pytest.fixture
def target(seen: Seen) -> Iterator[str]:
    """Address of a server that plays all services."""
    server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    memory_pb2_grpc.add_MemoryServiceServicer_to_server(_Memory(seen), server)
    retriever_pb2_grpc.add_RetrieverServiceServicer_to_server(_Retriever(seen), server)
    orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(_Orchestrator(seen), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)
