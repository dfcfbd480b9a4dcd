"""How every Nianlun channel is set up, for clients and for services that call each other.

What may be retried is not decided here but in the contract: methods with an ``idempotency_level``
are retried when the server was not reached (UNAVAILABLE), all others never.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
SERVICES = ("embedder", "retriever", "memory", "orchestrator")

# The second try comes soon, the last after about a second: what is meant is a connection that
# broke. For a service that restarts the clients wait, see ``nianlun.patience``.
_RETRY_POLICY = {
    "maxAttempts": 4,
    "initialBackoff": "0.1s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2.5,
    "retryableStatusCodes": ["UNAVAILABLE"],
}


def service_descriptors(names: Iterable[str] = SERVICES) -> list[ServiceDescriptor]:
    """Descriptors of the services in ``nianlun.<name>.v1``."""
    found: list[ServiceDescriptor] = []
    for name in names:
        module = importlib.import_module(f"nianlun.{name}.v1.{name}_pb2")
        file: FileDescriptor = module.DESCRIPTOR
        found.extend(file.services_by_name.values())
    return found


def is_repeatable(method: MethodDescriptor) -> bool:
    """Whether the contract says that a method may be sent again."""
    level = method.GetOptions().idempotency_level
    return bool(level != MethodOptions.IDEMPOTENCY_UNKNOWN)


def service_config(services: Iterable[ServiceDescriptor]) -> str:
    """The gRPC service config as JSON: round robin, and retries of idempotent methods.

    It sets no ``timeout``: deadlines are the caller's (a timeout in a service config fires early
    and never reaches the server), and no hedging, which gRPC Python ignores.
    """
    retried = [
        {"service": service.full_name, "method": method.name}
        for service in services
        for method in service.methods
        if is_repeatable(method)
    ]
    config: dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
    if retried:
        config["methodConfig"] = [{"name": retried, "retryPolicy": _RETRY_POLICY}]
    return json.dumps(config, separators=(",", ":"))


def channel_options(
    services: Iterable[ServiceDescriptor] | None = None,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> list[tuple[str, Any]]:
    """Options for ``grpc.insecure_channel``, ``grpc.aio.insecure_channel`` and the secure ones."""
    wanted = service_descriptors() if services is None else services
    return [
        ("grpc.service_config", service_config(wanted)),
        ("grpc.enable_retries", 1),
        # A little more than a server sends: its limit is on the message, ours on the frame.
        ("grpc.max_receive_message_length", max_message_bytes + 64 * 1024),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Reconnect soon after a restart; the default backs off up to two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
    ]


def target_uri(target: str) -> str:
    """``host:port`` as a name that is resolved to all of its addresses, for round robin."""
    if "://" in target or target.startswith(("unix:", "dns:", "ipv4:", "ipv6:")):
        return target
    return f"dns:///{target}"
