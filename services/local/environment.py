"""The environment of every process of the stack: addresses, connection strings, keys."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from services.local.home import GRPC_SERVICES

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Ports on the loopback interface that nobody listens on now, all different."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def choose_addresses() -> dict[str, str]:
    """A free address (host:port) for each gRPC service and the gateway."""
    names = (*GRPC_SERVICES, "gateway")
    return {
        name: f"{HOST}:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)
    }


def build(
    base: Mapping[str, str],
    addresses: Mapping[str, str],
    role_dsn: Callable[[str], str],
    service_key: str,
    log_format: str,
) -> dict[str, str]:
    """The environment for all processes: ``base`` and what the stack decides on top of it.

    Each service reads its own prefix, so that one environment serves them all. What the caller
    set for logging is kept; addresses and connection strings are always the stack's own.
    """
    environment = {name: value for name, value in base.items() if not _is_ours(name)}
    environment.setdefault("NIANLUN_LOG_FORMAT", log_format)
    environment.setdefault("HF_HUB_OFFLINE", "1")
    environment.setdefault("TOKENIZERS_PARALLELISM", "false")
    environment["PYTHONUNBUFFERED"] = "1"
    environment["NIANLUN_SERVICE_KEY"] = service_key
    owners = (*GRPC_SERVICES, "gateway")
    for owner in owners:
        prefix = f"NIANLUN_{owner.upper()}_"
        environment[f"{prefix}LISTEN"] = addresses[owner]
        for target in GRPC_SERVICES:
            if target != owner:
                environment[f"{prefix}{target.upper()}_TARGET"] = addresses[target]
    for service in GRPC_SERVICES:
        environment[f"NIANLUN_{service.upper()}_DATABASE_DSN"] = role_dsn(service)
    environment["NIANLUN_RETRIEVER_MAINTENANCE_DSN"] = role_dsn("maintenance")
    return environment


def _is_ours(name: str) -> bool:
    return name.startswith("NIANLUN_") and name.endswith(("_LISTEN", "_TARGET", "_DSN"))
