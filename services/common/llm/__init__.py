"""One client for every OpenAI-compatible chat model: deadlines, typed failures, JSON repair."""

from services.common.llm.client import ChatClient, Completion, estimate_tokens, provider_of
from services.common.llm.jsonish import JsonUnusable, parse_object
from services.common.llm.provider import ModelError, Provider, failures

__all__ = [
    "ChatClient",
    "Completion",
    "JsonUnusable",
    "ModelError",
    "Provider",
    "estimate_tokens",
    "failures",
    "parse_object",
    "provider_of",
]
