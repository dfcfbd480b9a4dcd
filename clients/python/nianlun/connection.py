"""Where the services are, and what every call carries: addresses, key, deadline, request id."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message as ProtoMessage

from nianlun import transport
from nianlun.operations.core import Operation
from nianlun.values import new_request_id

DEFAULT_TARGETS: Mapping[str, str] = {
    "embedder": "127.0.0.1:50051",
    "retriever": "127.0.0.1:50052",
    "memory": "127.0.0.1:50053",
    "orchestrator": "127.0.0.1:50054",
}


@dataclass(frozen=True)
class Connection:
    """How to reach a deployment.

    ``targets`` maps each service to host:port. ``timeout_s`` is the deadline of unary calls,
    ``stream_timeout_s`` that of chats (streamed or not), exports, imports and job watching, in
    seconds. ``root_certificates`` (PEM) or ``tls`` switch on TLS; without them the key travels in
    plain text, which is for loopback and trusted networks.
    """

    targets: Mapping[str, str] = field(default_factory=lambda: dict(DEFAULT_TARGETS))
    key: str = field(default="", repr=False)
    timeout_s: float = 30.0
    stream_timeout_s: float = 180.0
    tls: bool = False
    root_certificates: bytes | None = None

    @classmethod
    def of(
        cls,
        target: str | Mapping[str, str] | None = None,
        *,
        key: str | None = None,
        timeout_s: float = 30.0,
        stream_timeout_s: float | None = None,
        tls: bool = False,
        root_certificates: bytes | None = None,
    ) -> Connection:
        """From what a caller knows; the environment fills the rest.

        ``stream_timeout_s`` is 180 s by default, and ``timeout_s`` where that is longer.

        ``target`` is one address for all services (behind a proxy that routes by path), or one a
        service. Environment: NIANLUN_KEY and NIANLUN_RETRIEVER_TARGET, NIANLUN_MEMORY_TARGET, ...
        """
        targets = {
            name: os.environ.get(f"NIANLUN_{name.upper()}_TARGET") or default
            for name, default in DEFAULT_TARGETS.items()
        }
        if isinstance(target, str):
            targets = dict.fromkeys(targets, target)
        elif target is not None:
            unknown = set(target) - set(targets)
            if unknown:
                raise ValueError(f"no such service: {', '.join(sorted(unknown))}")
            targets |= dict(target)
        return cls(
            targets=targets,
            key=os.environ.get("NIANLUN_KEY", "") if key is None else key,
            timeout_s=timeout_s,
            stream_timeout_s=(
                max(timeout_s, cls.stream_timeout_s)
                if stream_timeout_s is None
                else stream_timeout_s
            ),
            tls=tls or root_certificates is not None,
            root_certificates=root_certificates,
        )

    @classmethod
    def local(cls, home: str | Path | None = None) -> Connection:
        """The stack that `make serve` started; its folder is `.nianlun` or NIANLUN_HOME.

        Raises:
            FileNotFoundError: no stack is running there.
        """
        folder = Path(home or os.environ.get("NIANLUN_HOME") or ".nianlun")
        try:
            info = json.loads((folder / "stack.json").read_text())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"no local stack runs in {folder.resolve()}; start one with `make serve` in this "
                "folder, or name the folder `.nianlun` of a running one with NIANLUN_HOME"
            ) from None
        return cls(targets=info["targets"], key=info["key"])

    def timeout_of(self, operation: Operation[..., Any]) -> float:
        """The deadline of a unary call, in seconds."""
        return self.stream_timeout_s if operation.writes_an_answer else self.timeout_s

    def with_timeout(self, timeout_s: float) -> Connection:
        """The same with another deadline, in seconds, for unary calls and chats."""
        return replace(self, timeout_s=timeout_s, stream_timeout_s=timeout_s)

    def metadata(
        self, request: ProtoMessage | None = None, given: Iterable[tuple[str, Any]] = ()
    ) -> list[tuple[str, Any]]:
        """What a call carries: what is ``given`` for it, a request id (that of the request, where
        it has one) and the key, unless the call has a key of its own.
        """
        found = list(given)
        names = {name.lower() for name, _value in found}
        if "x-request-id" not in names:
            found += headers(new_request_id() if request is None else identify(request))
        if self.key and "authorization" not in names:
            found.append(("authorization", f"Bearer {self.key}"))
        return found

    def credentials(self) -> grpc.ChannelCredentials | None:
        """TLS credentials; None for plain text."""
        if not self.tls:
            return None
        return grpc.ssl_channel_credentials(self.root_certificates)

    def options(self) -> list[tuple[str, Any]]:
        """Channel options: retries from the contract, round robin, message limits, keepalive."""
        return transport.channel_options()

    def uri(self, service: str) -> str:
        """The name to resolve for a service."""
        return transport.target_uri(self.targets[service])


def identify(request: ProtoMessage) -> str:
    """What a call is known by: the request id of its request, or a new one for a read."""
    return getattr(request, "request_id", "") or new_request_id()


def headers(request_id: str, key: str | None = None) -> tuple[tuple[str, str], ...]:
    """The metadata of a call of this id, with a bearer key of its own where one is given."""
    found: list[tuple[str, str]] = []
    if request_id.isascii() and request_id.isprintable():
        found.append(("x-request-id", request_id))
    if key is not None:
        found.append(("authorization", f"Bearer {key}"))
    return tuple(found)
