"""The seam to a chat model, and what it may say."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class ToolRequest:
    """A tool call as the model wrote it; `arguments` may be broken JSON."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ModelMessage:
    """One message to the model. `tool_calls` only on "assistant", `call_id` only on "tool"."""

    role: str
    text: str
    tool_calls: tuple[ToolRequest, ...] = ()
    call_id: str = ""


@dataclass(frozen=True)
class ToolSpec:
    """A tool the model may call; `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class ModelRequest:
    """One model call."""

    messages: Sequence[ModelMessage]
    tools: Sequence[ToolSpec] = ()
    schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None


@dataclass(frozen=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True)
class Thinking:
    """A piece of a reasoning model's thinking."""

    text: str


@dataclass(frozen=True)
class Done:
    """The end of a call. Token counts are None where the provider gave none; `left_out` names the
    parameters that the provider refused and the call was made without.
    """

    finish: str
    model: str
    tool_calls: tuple[ToolRequest, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    left_out: frozenset[str] = frozenset()


ModelEvent = Text | Thinking | Done


class ChatModel(Protocol):
    """A chat model that streams."""

    @property
    def name(self) -> str:
        """The model's name."""

    def stream(self, request: ModelRequest, timeout_s: float) -> AsyncGenerator[ModelEvent, None]:
        """Pieces as they come, then exactly one Done. Raises ModelError. Closing the iterator ends
        the call.
        """
