"""What a failed call raises: one exception type, with everything the service said about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from nianlun.common.v1 import common_pb2

_DETAILS = "grpc-status-details-bin"

RETRYABLE_REASONS = frozenset(
    {
        common_pb2.ERROR_REASON_FRESHNESS_NOT_MET,
        common_pb2.ERROR_REASON_OVERLOADED,
        common_pb2.ERROR_REASON_DATABASE_UNAVAILABLE,
        common_pb2.ERROR_REASON_DEPENDENCY_UNAVAILABLE,
        common_pb2.ERROR_REASON_MODEL_UNAVAILABLE,
        common_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
    }
)
"""The reasons after which the same request may succeed later: those that the contract calls
retryable."""

# Where no reason is given, gRPC or something on the way has failed the call. Not in this list:
# RESOURCE_EXHAUSTED, which is then an answer that is too large.
_RETRYABLE_CODES = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


@dataclass(frozen=True)
class FieldViolation:
    """One field of the request that was refused, and why."""

    field: str
    description: str


@dataclass(eq=False)
class NianlunError(Exception):
    """A call that failed.

    ``code`` is the gRPC status; ``reason`` the published ErrorReason; ``metadata`` its variable
    parts; ``violations`` the refused fields of an INVALID_ARGUMENT; ``retry_after_s`` how long the
    service asks to wait, in seconds; ``request_id`` what to quote in a report, and to send again
    where a write is repeated by hand.
    """

    code: grpc.StatusCode
    message: str
    reason: common_pb2.ErrorReason.ValueType = common_pb2.ERROR_REASON_UNSPECIFIED
    metadata: dict[str, str] = field(default_factory=dict)
    violations: tuple[FieldViolation, ...] = ()
    resource: tuple[str, str] | None = None
    retry_after_s: float | None = None
    request_id: str = ""

    def __str__(self) -> str:
        parts = [f"{self.code.name}: {self.message.removesuffix('.')}"]
        if self.resource is not None:
            parts.append(" ".join(self.resource))
        parts += [f"{item.field}: {item.description}" for item in self.violations]
        if self.request_id:
            parts.append(f"request id {self.request_id}")
        return "; ".join(parts)

    @property
    def retryable(self) -> bool:
        """Whether the same request (same request_id) may succeed later.

        Decided by the reason; by the code where the failure did not come from Nianlun, or its
        reason is newer than this client.
        """
        if self.reason == common_pb2.ERROR_REASON_UNSPECIFIED:
            return self.code in _RETRYABLE_CODES
        return self.reason in RETRYABLE_REASONS


class NotFoundError(NianlunError):
    """The named thing does not exist, or belongs to someone else."""


class InvalidArgumentError(NianlunError):
    """The request is wrong; ``violations`` names the fields."""


class UnauthenticatedError(NianlunError):
    """No key, or one that is unknown, revoked or expired."""


class UnavailableError(NianlunError):
    """A service or its database cannot be reached now; try again after ``retry_after_s``."""


class RunFailedError(Exception):
    """A streamed chat ended without an answer, although the call itself did not fail.

    ``run_id`` is for ``get_run``; ``error`` says why, where the service could say.
    """

    def __init__(self, run_id: str, error: common_pb2.ItemError | None) -> None:
        why = (error.message if error is not None else "") or "no reason was given"
        super().__init__(f"run {run_id} ended without an answer: {why}")
        self.run_id = run_id
        self.error = error


_TYPES: dict[grpc.StatusCode, type[NianlunError]] = {
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
}


def from_rpc_error(error: grpc.RpcError, request_id: str = "") -> NianlunError:
    """The typed form of what grpc or grpc.aio raised.

    ``request_id`` is the one that was sent: no service may have been there to repeat it.
    """
    call: Any = error
    code = call.code()
    trailing: Iterable[tuple[str, str | bytes]] = call.trailing_metadata() or ()
    found = NianlunError(code=code, message=call.details() or "", request_id=request_id)
    for key, value in trailing:
        if key == _DETAILS and isinstance(value, bytes):
            _read_details(found, value)
        elif key == "x-request-id":
            found.request_id = value if isinstance(value, str) else value.decode("ascii", "replace")
    return _TYPES.get(code, NianlunError)(**vars(found))


def _read_details(found: NianlunError, data: bytes) -> None:
    for detail in status_pb2.Status.FromString(data).details:
        info = error_details_pb2.ErrorInfo()
        bad_request = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        resource = error_details_pb2.ResourceInfo()
        if detail.Unpack(info):
            found.metadata = dict(info.metadata)
            found.reason = _reason(info.reason)
        elif detail.Unpack(bad_request):
            found.violations = tuple(
                FieldViolation(item.field, item.description)
                for item in bad_request.field_violations
            )
        elif detail.Unpack(retry):
            found.retry_after_s = retry.retry_delay.ToTimedelta().total_seconds()
        elif detail.Unpack(resource):
            found.resource = (resource.resource_type, resource.resource_name)


def _reason(name: str) -> common_pb2.ErrorReason.ValueType:
    """The enum value; a reason newer than this client is UNSPECIFIED."""
    full = name if name.startswith("ERROR_REASON_") else f"ERROR_REASON_{name}"
    number = common_pb2.ErrorReason.DESCRIPTOR.values_by_name.get(full)
    if number is None:
        return common_pb2.ERROR_REASON_UNSPECIFIED
    return common_pb2.ErrorReason.ValueType(number.number)
