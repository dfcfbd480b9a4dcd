"""Degradations are found where answers carry them, also at the end of a chat stream."""

from __future__ import annotations

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2
from services.common.grpc.interceptors.base import RpcCall
from services.common.grpc.interceptors.degradations import DegradationsInterceptor
from services.common.telemetry import Metrics

LACKS = [
    common_pb2.Degradation(kind=common_pb2.DEGRADATION_KIND_NO_LLM),
    common_pb2.Degradation(kind=common_pb2.DEGRADATION_KIND_MEMORY_SKIPPED),
]


def _seen(*responses: object) -> tuple[str, ...]:
    call = RpcCall("s/M", "s", {}, context=None, streaming=False)  # type: ignore[arg-type]
    interceptor = DegradationsInterceptor(Metrics.create())
    for response in responses:
        interceptor.on_response(call, response)
    return call.trail.degradations


def test_a_plain_answer() -> None:
    assert _seen(memory_pb2.LoadMemoryResponse(degradations=LACKS)) == ("no_llm", "memory_skipped")


def test_a_chat_stream_counts_its_end_and_not_its_notices() -> None:
    notice = orchestrator_pb2.Notice(degradation=LACKS[0])
    answer = orchestrator_pb2.ChatResponse(degradations=LACKS)
    completed = orchestrator_pb2.Completed(response=answer)
    events = [
        orchestrator_pb2.ChatEvent(notice=notice),
        orchestrator_pb2.ChatEvent(text_delta=orchestrator_pb2.TextDelta(text="hi")),
        orchestrator_pb2.ChatEvent(completed=completed),
    ]
    stream = [orchestrator_pb2.StreamChatResponse(event=event) for event in events]
    assert _seen(*stream) == ("no_llm", "memory_skipped")


def test_a_whole_answer_counts_nothing() -> None:
    assert _seen(memory_pb2.LoadMemoryResponse(), memory_pb2.AppendTurnResponse()) == ()
