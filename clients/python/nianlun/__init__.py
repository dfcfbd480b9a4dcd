"""Nianlun: a memory and retrieval backend for LLM agents. This is its Python client.

    from nianlun import Client, chat_input

    with Client.local() as client:
        client.append_turn("u_001", "s_1", "我叫林夏，请简短回答。")
        print(client.load_memory("u_001", "我是谁？").rendered)

The generated stubs live in the same package (``nianlun.memory.v1`` and so on), possibly in another
folder of the search path; ``extend_path`` merges the two.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

__path__ = pkgutil.extend_path(__path__, __name__)

if TYPE_CHECKING:
    from nianlun.aio import AsyncChatStream, AsyncClient
    from nianlun.client import ChatStream, Client
    from nianlun.connection import Connection
    from nianlun.errors import NianlunError, RunFailedError
    from nianlun.jobs import JobFailedError
    from nianlun.operations.chats import chat_input
    from nianlun.operations.knowledge import document
    from nianlun.operations.memories import assistant_message, user_message

__all__ = [
    "AsyncChatStream",
    "AsyncClient",
    "ChatStream",
    "Client",
    "Connection",
    "JobFailedError",
    "NianlunError",
    "RunFailedError",
    "assistant_message",
    "chat_input",
    "document",
    "user_message",
]


def __getattr__(name: str) -> Any:
    # Lazy, so that the services, which share this package for its transport, need not load it all.
    module = _where(name)
    if module is None:
        raise AttributeError(f"module 'nianlun' has no attribute {name!r}")
    return getattr(importlib.import_module(f"nianlun.{module}"), name)


def _where(name: str) -> str | None:
    """The module that defines a public name."""
    match name:
        case "AsyncClient" | "AsyncChatStream":
            return "aio"
        case "Client" | "ChatStream":
            return "client"
        case "Connection":
            return "connection"
        case "NianlunError" | "RunFailedError":
            return "errors"
        case "JobFailedError":
            return "jobs"
        case "chat_input":
            return "operations.chats"
        case "document":
            return "operations.knowledge"
        case "assistant_message" | "user_message":
            return "operations.memories"
        case _:
            return None
