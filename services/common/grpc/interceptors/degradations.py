"""What an answer lacks, as a metric and in the access log, for those who run the service."""

from __future__ import annotations

from google.protobuf.message import Message

from nianlun.common.v1 import common_pb2
from services.common.grpc.interceptors.base import Interceptor, RpcCall
from services.common.telemetry import Metrics

_FIELD = "degradations"
_DEPTH = 3
"""A stream's last event holds the whole answer that far below (event, completed, response)."""
_PREFIX = "DEGRADATION_KIND_"


class DegradationsInterceptor(Interceptor):
    """Counts the degradations of every answer by kind and notes them for the access log."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def on_response(self, call: RpcCall, response: object) -> None:
        """Count what stands in the answer."""
        if not isinstance(response, Message):
            return
        kinds = tuple(_kinds(response, _DEPTH))
        for kind in kinds:
            self._metrics.degradations.labels(kind).inc()
        call.trail.degradations += kinds


def _kinds(message: Message, depth: int) -> list[str]:
    if _FIELD in message.DESCRIPTOR.fields_by_name:
        return [_name(each) for each in getattr(message, _FIELD)]
    if depth == 0:
        return []
    inner = (value for field, value in message.ListFields() if not field.is_repeated)
    return [k for each in inner if isinstance(each, Message) for k in _kinds(each, depth - 1)]


def _name(degradation: common_pb2.Degradation) -> str:
    return common_pb2.DegradationKind.Name(degradation.kind).removeprefix(_PREFIX).lower()
