"""DomainError to google.rpc.Status and back: the wire form of the error catalogue."""

from __future__ import annotations

import math

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from nianlun.common.v1 import common_pb2
from services.common import errors
from services.common.errors import CATALOGUE, DOMAIN, DomainError

_PREFIX = "ERROR_REASON_"
DETAILS_KEY = "grpc-status-details-bin"
MAX_VIOLATIONS = 20
MAX_DETAIL_BYTES = 120
MAX_VIOLATIONS_BYTES = 2_000
"""Field paths, descriptions and metadata values are cut to this; all of it must fit in trailers,
of which gRPC takes 8 KB: beyond that the caller sees RESOURCE_EXHAUSTED instead of the failure."""


def to_status(error: DomainError) -> status_pb2.Status:
    """The status of ``error``: exactly one ErrorInfo, then BadRequest, RetryInfo, ResourceInfo."""
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    for key, value in list(error.metadata.items())[:8]:
        info.metadata[_cut(key)] = _cut(value)
    details: list[any_pb2.Any] = [_packed(info)]
    if error.violations:
        bad = error_details_pb2.BadRequest()
        for field, description in error.violations[:MAX_VIOLATIONS]:
            if bad.ByteSize() > MAX_VIOLATIONS_BYTES:
                break
            bad.field_violations.add(field=_cut(field), description=_cut(description))
        details.append(_packed(bad))
    if error.retry_after_s is not None:
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=_duration(error))))
    if error.resource is not None:
        kind, name = error.resource
        details.append(
            _packed(
                error_details_pb2.ResourceInfo(resource_type=_cut(kind), resource_name=_cut(name))
            )
        )
    return status_pb2.Status(
        code=error.code.value[0],
        message=error.message,
        details=details,
    )


def from_rpc_error(error: grpc.RpcError, service: str) -> DomainError:
    """The DomainError to raise when a call to ``service`` failed.

    A reason of our own catalogue passes through with its fields, so that a caller sees the same
    failure one hop or three hops away. Everything else becomes DEPENDENCY_UNAVAILABLE (the service
    was not reached or is not well), DEADLINE_EXCEEDED or INTERNAL.
    """
    code = _code_of(error)
    status = _status_of(error)
    if status is not None:
        passed = _passed_through(status)
        if passed is not None:
            return passed
    detail = f"{service}: {code.name}: {_details_of(error)}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DomainError("DEADLINE_EXCEEDED", metadata={"step": service}, detail=detail)
    if code is grpc.StatusCode.UNAVAILABLE:
        return errors.dependency_unavailable(service, detail=detail)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return DomainError("OVERLOADED", retry_after_s=1.0, detail=detail)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return DomainError("UNIMPLEMENTED", detail=detail)
    if code is grpc.StatusCode.CANCELLED:
        return DomainError("CANCELLED", detail=detail)
    return errors.internal(detail)


def reason_number(name: str) -> common_pb2.ErrorReason.ValueType:
    """The contract's number of a reason; INTERNAL for one the contract does not know."""
    known = common_pb2.ErrorReason.DESCRIPTOR.values_by_name.get(f"{_PREFIX}{name}")
    if known is None:
        return common_pb2.ERROR_REASON_INTERNAL
    return common_pb2.ErrorReason.ValueType(known.number)


def reason_name(number: int) -> str:
    """The reason as it travels, without prefix; INTERNAL where none, or a newer one, was given."""
    known = common_pb2.ErrorReason.DESCRIPTOR.values_by_number.get(number)
    if known is None or known.number == common_pb2.ERROR_REASON_UNSPECIFIED:
        return "INTERNAL"
    return known.name.removeprefix(_PREFIX)


def item_error(reason: str, message: str) -> common_pb2.ItemError:
    """The failure of one item; `message` is cut to the contract's 500 characters."""
    return common_pb2.ItemError(reason=reason_number(reason), message=message[:500])


def item_of(error: DomainError) -> common_pb2.ItemError:
    """``error`` as a part of an answer, with what ``to_status`` would send of it."""
    item = item_error(error.reason, error.message)
    for key, value in list(error.metadata.items())[:8]:
        item.metadata[_cut(key)] = _cut(value)
    if error.retry_after_s is not None:
        item.retry_after.CopyFrom(_duration(error))
    return item


def from_item(item: common_pb2.ItemError) -> DomainError:
    """The DomainError that an answer speaks of; inverse of ``item_of``."""
    retry_after_s = None
    if item.HasField("retry_after"):
        retry_after_s = _seconds(item.retry_after)
    return DomainError(
        reason_name(item.reason),
        item.message or None,
        metadata=dict(item.metadata),
        retry_after_s=retry_after_s,
    )


def _passed_through(status: status_pb2.Status) -> DomainError | None:
    info = _error_info(status)
    if info is None or info.reason not in CATALOGUE:
        return None
    violations: list[tuple[str, str]] = []
    retry_after: float | None = None
    resource: tuple[str, str] | None = None
    for packed in status.details:
        bad, retry = error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
        about = error_details_pb2.ResourceInfo()
        if packed.Unpack(bad):
            violations = [(item.field, item.description) for item in bad.field_violations]
        elif packed.Unpack(retry):
            retry_after = _seconds(retry.retry_delay)
        elif packed.Unpack(about):
            resource = (about.resource_type, about.resource_name)
    return DomainError(
        info.reason,
        status.message or None,
        metadata=dict(info.metadata),
        violations=violations,
        retry_after_s=retry_after,
        resource=resource,
    )


def _error_info(status: status_pb2.Status) -> error_details_pb2.ErrorInfo | None:
    for packed in status.details:
        info = error_details_pb2.ErrorInfo()
        if packed.Unpack(info):
            return info if info.domain == DOMAIN else None
    return None


def _status_of(error: grpc.RpcError) -> status_pb2.Status | None:
    read = getattr(error, "trailing_metadata", None)
    for key, value in (read() if read else None) or ():
        if key == DETAILS_KEY:
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                return None
    return None


def _code_of(error: grpc.RpcError) -> grpc.StatusCode:
    read = getattr(error, "code", None)
    code = read() if read else None
    return code if isinstance(code, grpc.StatusCode) else grpc.StatusCode.UNKNOWN


def _details_of(error: grpc.RpcError) -> str:
    read = getattr(error, "details", None)
    return str((read() if read else None) or "")[:500]


def _packed(
    message: error_details_pb2.ErrorInfo
    | error_details_pb2.BadRequest
    | error_details_pb2.RetryInfo
    | error_details_pb2.ResourceInfo,
) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def _duration(error: DomainError) -> duration_pb2.Duration:
    seconds = max(0.0, error.retry_after_s or 0.0)
    whole = math.floor(seconds)
    return duration_pb2.Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))


def _seconds(duration: duration_pb2.Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _cut(text: str) -> str:
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= MAX_DETAIL_BYTES:
        return text
    return encoded[: MAX_DETAIL_BYTES - 3].decode("utf-8", "ignore") + "…"
