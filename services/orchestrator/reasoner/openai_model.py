"""Any OpenAI-compatible chat API, streamed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from services.common.llm import ModelError, Provider, failures
from services.orchestrator.reasoner.model import (
    Done,
    ModelEvent,
    ModelMessage,
    ModelRequest,
    Text,
    Thinking,
    ToolRequest,
)
from services.orchestrator.reasoner.pieces import SurrogateJoiner, ThinkSplitter, clean


@dataclass
class _Partial:
    call_id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class _Reading:
    """What one stream has said so far."""

    thinking: ThinkSplitter = field(default_factory=ThinkSplitter)
    joiner: SurrogateJoiner = field(default_factory=SurrogateJoiner)
    calls: dict[int, _Partial] = field(default_factory=dict)
    finish: str = ""
    model: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    left_out: frozenset[str] = frozenset()


class OpenAiModel:
    """A ChatModel over HTTP."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    @property
    def name(self) -> str:
        """The model asked for."""
        return self._provider.model

    async def close(self) -> None:
        """Close the connections."""
        await self._provider.close()

    async def stream(
        self, request: ModelRequest, timeout_s: float
    ) -> AsyncGenerator[ModelEvent, None]:
        """See ChatModel. A closed iterator closes the HTTP response, which is what providers
        watch.
        """
        reading = _Reading(model=self.name)
        with self._provider.observed() as seen:
            try:
                async with contextlib.aclosing(self._read(request, timeout_s, reading)) as events:
                    async for event in events:
                        yield event
            finally:
                seen.prompt_tokens = reading.prompt_tokens or 0
                seen.completion_tokens = reading.completion_tokens or 0

    async def _read(
        self, request: ModelRequest, timeout_s: float, reading: _Reading
    ) -> AsyncGenerator[ModelEvent, None]:
        with failures():
            created = await self._provider.create(_body(request), timeout_s)
        response, reading.left_out = created.reply, created.left_out
        try:
            with failures():
                async for chunk in response:
                    for event in _understood(chunk, reading):
                        yield event
        except ModelError as error:
            if error.kind == "unavailable":
                raise ModelError("cut", "the stream broke") from error
            raise
        finally:
            # Broken already, or closed by its other end: there is nothing left to close.
            with contextlib.suppress(ModelError), failures():
                await response.close()
        for event in _rest(reading):
            yield event
        if not reading.finish:
            raise ModelError("cut", "the stream ended without a finish reason")
        yield _done(reading)


def _body(request: ModelRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "messages": [_message(m) for m in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            }
            for tool in request.tools
        ]
    if request.schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": dict(request.schema)},
        }
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.max_output_tokens is not None:
        body["max_tokens"] = request.max_output_tokens
    return body


def _understood(chunk: Any, reading: _Reading) -> list[ModelEvent]:
    try:
        return _events(chunk, reading)
    except (AttributeError, TypeError) as error:
        # JSON, but no chunk: the package checks no types.
        raise ModelError("malformed", "a piece of the answer has another form") from error


def _message(message: ModelMessage) -> dict[str, Any]:
    result: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_calls:
        result["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    if message.call_id:
        result["tool_call_id"] = message.call_id
    return result


def _events(chunk: Any, reading: _Reading) -> list[ModelEvent]:
    usage = getattr(chunk, "usage", None)
    if usage is not None:
        reading.prompt_tokens = usage.prompt_tokens
        reading.completion_tokens = usage.completion_tokens
    reading.model = getattr(chunk, "model", None) or reading.model
    if not chunk.choices:
        return []
    choice = chunk.choices[0]
    reading.finish = choice.finish_reason or reading.finish
    delta = choice.delta
    if delta is None:
        return []
    events: list[ModelEvent] = []
    thought = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
    if isinstance(thought, str) and thought:
        events.append(Thinking(clean(thought)))
    for call in delta.tool_calls or ():
        _collect(call, reading)
    if delta.content:
        thinking, text = reading.thinking.feed(reading.joiner.feed(delta.content))
        events += [Thinking(thinking)] if thinking else []
        events += [Text(text)] if text else []
    return events


def _collect(call: Any, reading: _Reading) -> None:
    index = call.index
    if index is None:
        # Some servers leave it out: a piece with an id of its own begins a call, others go on.
        last = max(reading.calls, default=-1)
        goes_on = last >= 0 and call.id in (None, "", reading.calls[last].call_id)
        index = last if goes_on else last + 1
    partial = reading.calls.setdefault(index, _Partial())
    partial.call_id = call.id or partial.call_id
    if call.function is not None:
        partial.name += call.function.name or ""
        partial.arguments += call.function.arguments or ""


def _rest(reading: _Reading) -> list[ModelEvent]:
    thinking, text = reading.thinking.feed(reading.joiner.flush())
    more_thinking, more_text = reading.thinking.flush()
    thinking, text = thinking + more_thinking, text + more_text
    return [*([Thinking(thinking)] if thinking else []), *([Text(text)] if text else [])]


def _done(reading: _Reading) -> Done:
    calls = tuple(
        ToolRequest(p.call_id or f"call_{index}", clean(p.name), clean(p.arguments))
        for index, p in sorted(reading.calls.items())
    )
    return Done(
        finish=reading.finish,
        model=reading.model,
        tool_calls=calls,
        prompt_tokens=reading.prompt_tokens,
        completion_tokens=reading.completion_tokens,
        left_out=reading.left_out,
    )
