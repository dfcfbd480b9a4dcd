"""One client for every OpenAI-compatible chat model: deadlines, typed failures, JSON repair."""

from services.common.llm.client import ChatClient, Completion, Delta, ToolCall, estimate_tokens
from services.common.llm.jsonish import JsonUnusable, parse_object

__all__ = [
    "ChatClient",
    "Completion",
    "Delta",
    "JsonUnusable",
    "ToolCall",
    "estimate_tokens",
    "parse_object",
]
