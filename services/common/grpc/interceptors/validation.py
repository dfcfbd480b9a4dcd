"""Validation that needs no knowledge of a service: size, decodability, enums, page sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from services.common import errors
from services.common.errors import DomainError
from services.common.grpc.interceptors.base import Interceptor, RpcCall

_MAX_VIOLATIONS = 20


@dataclass(frozen=True)
class Rejected:
    """Stands in for a request that could not be read, until a status can be sent for it."""

    error: DomainError


class ValidationInterceptor(Interceptor):
    """Refuses what no handler should see. Innermost, so that only authenticated callers get here.

    A request that gRPC itself refuses ends without details, so reading happens here: the transport
    accepts more bytes than ``max_bytes``, and undecodable bytes become a request that is refused.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._interesting: dict[Any, bool] = {}

    def deserializer(self, inner: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """Bytes to message or Rejected."""
        limit = self._max_bytes

        def read(data: bytes) -> Any:
            if len(data) > limit:
                return Rejected(errors.message_too_large(len(data), limit))
            try:
                return inner(data)
            except DecodeError:
                return Rejected(
                    errors.invalid_argument("request", "is not valid protobuf or not valid UTF-8")
                )

        return read

    def on_request(self, call: RpcCall, request: object) -> None:
        """Raise INVALID_ARGUMENT for unknown enum values and negative page sizes."""
        if isinstance(request, Rejected):
            raise request.error
        if not isinstance(request, Message):
            return
        violations: list[tuple[str, str]] = []
        if getattr(request, "page_size", 0) < 0:
            violations.append(("page_size", "must not be negative"))
        if self._has_enums(request.DESCRIPTOR):
            self._check_enums(request, "", violations)
        if violations:
            raise errors.invalid_arguments(violations)

    def _has_enums(self, descriptor: Any) -> bool:
        """True where a message of this type can hold an enum at any depth."""
        known = self._interesting.get(descriptor)
        if known is None:
            self._interesting[descriptor] = False  # ends recursion through recursive types
            known = any(
                field.enum_type is not None
                or (field.message_type is not None and self._has_enums(field.message_type))
                for field in descriptor.fields
            )
            self._interesting[descriptor] = known
        return known

    def _check_enums(self, message: Message, path: str, out: list[tuple[str, str]]) -> None:
        for field, value in message.ListFields():
            if len(out) >= _MAX_VIOLATIONS:
                return
            where = f"{path}{field.name}"
            if field.enum_type is not None:
                known = field.enum_type.values_by_number
                items = value if field.is_repeated else [value]
                out.extend(
                    (where, f"{item} is not a known value") for item in items if item not in known
                )
            elif field.message_type is not None and self._has_enums(field.message_type):
                for label, item in _messages(field, value):
                    self._check_enums(item, f"{where}{label}.", out)


def _messages(field: FieldDescriptor, value: Any) -> list[tuple[str, Message]]:
    """The messages in a field, each with the label that tells it from its siblings."""
    if not field.is_repeated:
        return [("", value)]
    if isinstance(value, Mapping):
        # Map values that are enums themselves are not used by any contract of ours.
        return [(f"[{key}]", item) for key, item in value.items() if isinstance(item, Message)]
    return [(f"[{index}]", item) for index, item in enumerate(value)]
