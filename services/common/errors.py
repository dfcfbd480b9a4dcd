"""The error catalogue: every failure a caller can see; one exception type, a function a reason.

Domain code raises what these functions return. The public part (reason, metadata, field violations)
travels to the caller; ``detail`` is private and only reaches the log. One interceptor turns a
``DomainError`` into ``google.rpc.Status`` (see ``services.common.status``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import grpc

DOMAIN = "nianlun.io"
MAX_MESSAGE_CHARS = 200
"""Longest public status message. It travels in HTTP/2 trailers, twice, once with every character
beyond ASCII as nine bytes: longer ones break the call."""


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue: the gRPC code of a reason and its public sentence.

    ``retryable``: the same call may succeed later without being changed. It is a matter of the
    reason: RESOURCE_EXHAUSTED says that a queue is full (later), and that a message is too large
    (never). The clients have the same list.
    """

    code: grpc.StatusCode
    message: str
    retryable: bool = False


_CODE = grpc.StatusCode

CATALOGUE: Mapping[str, Entry] = MappingProxyType(
    {
        "INVALID_ARGUMENT": Entry(_CODE.INVALID_ARGUMENT, "The request has unusable fields."),
        "UNAUTHENTICATED": Entry(_CODE.UNAUTHENTICATED, "A valid key is required."),
        "PERMISSION_DENIED": Entry(_CODE.PERMISSION_DENIED, "The key lacks the scope for this."),
        "NOT_FOUND": Entry(_CODE.NOT_FOUND, "There is no such thing."),
        "ALREADY_EXISTS": Entry(_CODE.ALREADY_EXISTS, "The id is taken."),
        "ETAG_MISMATCH": Entry(_CODE.ABORTED, "The etag is not current; read again."),
        "REQUEST_ID_REUSED": Entry(
            _CODE.INVALID_ARGUMENT, "This request_id was used with a different request."
        ),
        "FAILED_PRECONDITION": Entry(_CODE.FAILED_PRECONDITION, "The state does not allow this."),
        "FRESHNESS_NOT_MET": Entry(
            _CODE.FAILED_PRECONDITION,
            "The position asked for was not reached in time.",
            retryable=True,
        ),
        "OVERLOADED": Entry(
            _CODE.RESOURCE_EXHAUSTED, "The service is busy; try again later.", retryable=True
        ),
        "MESSAGE_TOO_LARGE": Entry(_CODE.RESOURCE_EXHAUSTED, "The message is too large."),
        "BUDGET_EXHAUSTED": Entry(_CODE.RESOURCE_EXHAUSTED, "The tenant's budget is used up."),
        "DATABASE_UNAVAILABLE": Entry(
            _CODE.UNAVAILABLE, "The database cannot be reached.", retryable=True
        ),
        "DEPENDENCY_UNAVAILABLE": Entry(
            _CODE.UNAVAILABLE, "A dependency cannot be reached.", retryable=True
        ),
        "MODEL_UNAVAILABLE": Entry(_CODE.UNAVAILABLE, "The model is not ready.", retryable=True),
        "DEADLINE_EXCEEDED": Entry(_CODE.DEADLINE_EXCEEDED, "The deadline passed.", retryable=True),
        "CANCELLED": Entry(_CODE.CANCELLED, "The call was cancelled."),
        "UNIMPLEMENTED": Entry(_CODE.UNIMPLEMENTED, "This version does not serve this."),
        "INTERNAL": Entry(
            _CODE.INTERNAL, "Internal error; the log has details under the request id."
        ),
        "EMPTY_TEXT": Entry(_CODE.INVALID_ARGUMENT, "Nothing is left of the text."),
        "TEXT_TOO_LONG": Entry(_CODE.INVALID_ARGUMENT, "The text exceeds the model's limit."),
        "MODEL_FAILED": Entry(_CODE.INTERNAL, "The model failed on this text."),
        "PROVIDER_REFUSED": Entry(_CODE.FAILED_PRECONDITION, "The provider refused the call."),
    }
)


class StartupError(Exception):
    """A process cannot start; the message says what is missing and what to do about it."""


class DomainError(Exception):
    """A failure with a published reason. Raised by domain code, mapped once at the edge.

    ``reason`` is a name of ``ErrorReason`` without its prefix. ``violations`` are (field,
    description) pairs, ``resource`` is (type, name). ``detail`` is never sent to a caller.
    """

    def __init__(
        self,
        reason: str,
        message: str | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[tuple[str, str]] = (),
        retry_after_s: float | None = None,
        resource: tuple[str, str] | None = None,
        detail: str | None = None,
    ) -> None:
        entry = CATALOGUE[reason]
        self.reason = reason
        self.code = entry.code
        self.message = (message or entry.message)[:MAX_MESSAGE_CHARS]
        self.metadata: Mapping[str, str] = dict(metadata or {})
        self.violations = tuple(violations)
        self.retry_after_s = retry_after_s
        self.resource = resource
        self.detail = detail
        super().__init__(f"{reason}: {self.message}")

    @property
    def retryable(self) -> bool:
        """True when the same call may succeed later without being changed."""
        return CATALOGUE[self.reason].retryable


def invalid_argument(field: str, description: str) -> DomainError:
    """One field is unusable. ``field`` is a path such as ``messages[1].text``."""
    return invalid_arguments([(field, description)])


def invalid_arguments(violations: Sequence[tuple[str, str]]) -> DomainError:
    """Several fields are unusable; each is named in ``BadRequest``."""
    fields = ", ".join(field for field, _ in violations[:8])
    return DomainError(
        "INVALID_ARGUMENT", f"The request has unusable fields: {fields}.", violations=violations
    )


def unauthenticated(detail: str | None = None) -> DomainError:
    """The key is missing, malformed, unknown, expired or revoked; the caller learns no more."""
    return DomainError("UNAUTHENTICATED", detail=detail)


def permission_denied(scope: str) -> DomainError:
    """The key is valid but lacks ``scope``."""
    return DomainError("PERMISSION_DENIED", metadata={"scope": scope})


def not_found(resource_type: str, name: str) -> DomainError:
    """Nothing of that name in the caller's tenant."""
    return DomainError(
        "NOT_FOUND", f"There is no such {resource_type}.", resource=(resource_type, name)
    )


def already_exists(resource_type: str, name: str) -> DomainError:
    """The id is taken."""
    return DomainError(
        "ALREADY_EXISTS", f"This {resource_type} exists already.", resource=(resource_type, name)
    )


def etag_mismatch() -> DomainError:
    """The etag sent is not the current one."""
    return DomainError("ETAG_MISMATCH")


def request_id_reused() -> DomainError:
    """The request_id was used before with different content."""
    return DomainError(
        "REQUEST_ID_REUSED",
        violations=[("request_id", "was used before with a different request")],
    )


def failed_precondition(state: str, message: str | None = None) -> DomainError:
    """The state of the thing does not allow the call; ``state`` names it."""
    return DomainError("FAILED_PRECONDITION", message, metadata={"state": state})


def freshness_not_met(detail: str | None = None) -> DomainError:
    """The position asked for with at_least was not reached before the deadline."""
    return DomainError("FRESHNESS_NOT_MET", detail=detail)


def overloaded(retry_after_s: float = 1.0) -> DomainError:
    """The queue is full, or the predicted wait exceeds the caller's deadline."""
    return DomainError("OVERLOADED", retry_after_s=retry_after_s)


def message_too_large(size: int, limit: int) -> DomainError:
    """A message of ``size`` bytes exceeds ``limit`` bytes."""
    return DomainError(
        "MESSAGE_TOO_LARGE",
        f"The message has {size} bytes, the limit is {limit}.",
        metadata={"limit_bytes": str(limit), "size_bytes": str(size)},
    )


def budget_exhausted(layer: str) -> DomainError:
    """The tenant's budget for ``layer`` is used up."""
    return DomainError("BUDGET_EXHAUSTED", metadata={"layer": layer})


def database_unavailable(detail: str | None = None, retry_after_s: float = 1.0) -> DomainError:
    """The database cannot be reached now."""
    return DomainError("DATABASE_UNAVAILABLE", retry_after_s=retry_after_s, detail=detail)


def dependency_unavailable(
    service: str, *, retry_after_s: float = 1.0, detail: str | None = None
) -> DomainError:
    """Another service or a provider cannot be reached now."""
    return DomainError(
        "DEPENDENCY_UNAVAILABLE",
        f"{service} cannot be reached.",
        metadata={"service": service},
        retry_after_s=retry_after_s,
        detail=detail,
    )


def model_unavailable(
    model: str, detail: str | None = None, message: str | None = None
) -> DomainError:
    """The model is not loaded or not healthy, or its provider does not answer."""
    return DomainError(
        "MODEL_UNAVAILABLE", message, metadata={"model": model}, retry_after_s=1.0, detail=detail
    )


def deadline_exceeded(step: str) -> DomainError:
    """The caller's deadline passed in ``step``."""
    return DomainError("DEADLINE_EXCEEDED", metadata={"step": step})


def unimplemented(what: str) -> DomainError:
    """Part of the contract that this version does not serve."""
    return DomainError("UNIMPLEMENTED", f"{what} is not served by this version.")


def internal(detail: str | None = None) -> DomainError:
    """A fault of the server; ``detail`` goes to the log only."""
    return DomainError("INTERNAL", detail=detail)


def provider_refused(provider_status: int, detail: str | None = None) -> DomainError:
    """A remote model provider refused the call for good (4xx other than 429)."""
    return DomainError(
        "PROVIDER_REFUSED", metadata={"provider_status": str(provider_status)}, detail=detail
    )
