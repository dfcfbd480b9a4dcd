"""Failures in the shape that OpenAI clients know."""

from __future__ import annotations

import math
from typing import Any

import grpc
from starlette.responses import JSONResponse

from services.common.errors import DomainError

_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: (400, "invalid_request_error"),
    grpc.StatusCode.FAILED_PRECONDITION: (400, "invalid_request_error"),
    grpc.StatusCode.OUT_OF_RANGE: (400, "invalid_request_error"),
    grpc.StatusCode.UNAUTHENTICATED: (401, "authentication_error"),
    grpc.StatusCode.PERMISSION_DENIED: (403, "permission_error"),
    grpc.StatusCode.NOT_FOUND: (404, "not_found_error"),
    grpc.StatusCode.ALREADY_EXISTS: (409, "conflict_error"),
    grpc.StatusCode.ABORTED: (409, "conflict_error"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (429, "rate_limit_error"),
    grpc.StatusCode.CANCELLED: (499, "api_error"),
    grpc.StatusCode.UNIMPLEMENTED: (501, "api_error"),
    grpc.StatusCode.UNAVAILABLE: (503, "api_error"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (504, "api_error"),
}
# Reasons whose HTTP status is not that of their code. Clients of OpenAI's API send a request again
# after a 5xx: a model that failed on this input would fail, and be paid for, each time.
_OF_REASON = {
    "MESSAGE_TOO_LARGE": (413, "invalid_request_error"),
    "MODEL_FAILED": (422, "invalid_request_error"),
}
_TYPES = {413: "invalid_request_error", 404: "not_found_error", 405: "invalid_request_error"}


class HttpError(Exception):
    """A failure the gateway itself finds. `param` is the field at fault."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code


def bad_request(message: str, param: str | None = None, code: str | None = None) -> HttpError:
    """400: the request cannot be used."""
    return HttpError(400, message, param=param, code=code)


def body(message: str, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    """The JSON of an error."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def domain_body(error: DomainError) -> tuple[int, dict[str, Any]]:
    """(HTTP status, JSON) of a failure of a service."""
    status, kind = _OF_REASON.get(error.reason) or _STATUS.get(error.code, (500, "api_error"))
    message = error.message
    if error.violations:
        message = "; ".join(f"{field}: {text}" for field, text in error.violations[:8])
    code = "invalid_api_key" if error.reason == "UNAUTHENTICATED" else error.reason.lower()
    param = error.violations[0][0] if error.violations else None
    return status, body(message, kind, param, code)


def domain_response(error: DomainError) -> JSONResponse:
    """The response to a failure of a service, Retry-After included."""
    status, content = domain_body(error)
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(content, status_code=status, headers=headers)


def http_response(error: HttpError) -> JSONResponse:
    """The response to a failure the gateway found."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    if error.status == 401:
        kind = "authentication_error"
    return JSONResponse(
        body(error.message, kind, error.param, error.code), status_code=error.status
    )
