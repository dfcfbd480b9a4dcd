"""What an operator decides about one MCP server."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from nianlun.connection import DEFAULT_TARGETS, Connection


class Variable(StrEnum):
    """The environment variables that the command reads, beside the addresses of the services."""

    API_KEY = "NIANLUN_API_KEY"
    KEY = "NIANLUN_KEY"
    LISTEN = "NIANLUN_MCP_LISTEN"
    USER = "NIANLUN_MCP_USER"
    SESSION = "NIANLUN_MCP_SESSION"
    COLLECTIONS = "NIANLUN_MCP_COLLECTIONS"
    CHOOSE_USER = "NIANLUN_MCP_CHOOSE_USER"
    FORGET_EVERYTHING = "NIANLUN_MCP_FORGET_EVERYTHING"
    TIME_ZONE = "NIANLUN_MCP_TIME_ZONE"
    TLS = "NIANLUN_MCP_TLS"
    CA_FILE = "NIANLUN_TLS_CA_FILE"
    HOSTS = "NIANLUN_MCP_HOSTS"
    ORIGINS = "NIANLUN_MCP_ORIGINS"


ADDRESSES = tuple(f"NIANLUN_{service.upper()}_TARGET" for service in DEFAULT_TARGETS)


@dataclass(frozen=True)
class McpSettings:
    """One server.

    ``connection`` says where the services are; its key is the caller's over stdio and is not used
    over HTTP, where every request brings one. ``user_id`` binds the server to one user. With
    ``choose_user`` the tools take a user id from the model: for agents that serve many users by
    themselves. ``collections`` are the only ones that may be searched, the first by default; empty:
    any of the tenant. ``forget_everything`` lets ``forget`` erase the whole user.
    """

    connection: Connection = field(default_factory=Connection)
    user_id: str = ""
    session_id: str = ""
    collections: tuple[str, ...] = ()
    choose_user: bool = False
    forget_everything: bool = False
    time_zone: str = ""
    ask_timeout_s: float = 120.0


@dataclass(frozen=True)
class HttpSettings:
    """Where a server over HTTP listens, and by which names it may be called.

    ``hosts`` are the values of the Host header that are answered (``name`` or ``name:port``), which
    is what stops a web page from reaching a server on this machine by a name of its own; loopback
    names always are. ``origins`` are the web origins that may call. A server that is told to stop
    finishes requests for ``grace_s`` seconds.
    """

    host: str = "127.0.0.1"
    port: int = 8090
    path: str = "/mcp"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    max_body_bytes: int = 1024 * 1024
    grace_s: int = 20
