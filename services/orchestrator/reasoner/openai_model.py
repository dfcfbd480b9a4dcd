"""Any OpenAI-compatible chat API, by the `openai` package."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai

from services.common.llm.observe import model_call
from services.common.telemetry import Telemetry
from services.orchestrator.reasoner.model import (
    Done,
    ModelError,
    ModelEvent,
    ModelMessage,
    ModelRequest,
    Text,
    Thinking,
    ToolRequest,
)
from services.orchestrator.reasoner.pieces import SurrogateJoiner, ThinkSplitter, clean

_OPTIONAL = ("response_format", "tools", "temperature", "stream_options", "max_tokens")


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


class OpenAiModel:
    """A ChatModel over HTTP.

    What a provider refuses (tools, response_format, temperature, stream_options) is left out from
    then on: the
    refusal is learnt once per process from its 400.
    """

    def __init__(
        self, base_url: str, api_key: str, model: str, telemetry: Telemetry | None = None
    ) -> None:
        # Retries are the reasoner's: it alone knows whether a piece was passed on already.
        self._client = openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)
        self._model = model
        self._telemetry = telemetry
        self._refused: set[str] = set()

    @property
    def name(self) -> str:
        """The model asked for."""
        return self._model

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def stream(
        self, request: ModelRequest, timeout_s: float
    ) -> AsyncGenerator[ModelEvent, None]:
        """See ChatModel. A closed iterator closes the HTTP response, which is
        what providers watch.
        """
        with model_call(self._telemetry, self._model) as seen:
            reading = _Reading(model=self._model)
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
        opened = False
        try:
            response = await self._open(request, timeout_s)
            opened = True
            try:
                async for chunk in response:
                    for event in _events(chunk, reading):
                        yield event
            finally:
                with contextlib.suppress(openai.OpenAIError):
                    await response.close()
        except openai.OpenAIError as error:
            if opened and not isinstance(error, openai.APITimeoutError):
                raise ModelError("cut", "the stream broke") from error
            raise _mapped(error) from error
        except httpx2.TimeoutException as error:
            raise ModelError("timeout", "the provider stopped sending") from error
        except (httpx2.HTTPError, httpx2.StreamError, ValueError, OSError) as error:
            # A broken body or connection after the headers; `openai` does not wrap these.
            raise ModelError("cut", f"the stream broke: {type(error).__name__}") from error
        for event in _rest(reading):
            yield event
        if not reading.finish:
            raise ModelError("cut", "the stream ended without a finish reason")
        yield _done(reading)

    async def _open(self, request: ModelRequest, timeout_s: float) -> Any:
        body = self._body(request)
        left_out: set[str] = set()
        while True:
            try:
                response = await self._client.chat.completions.create(**body, timeout=timeout_s)
            except openai.BadRequestError as error:
                culprit = _culprit(str(error), body)
                if culprit is None:
                    raise
                left_out.add(culprit)
                del body[culprit]
            else:
                # Only what a later success has shown to be the trouble is left out for good.
                self._refused |= left_out
                return response

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
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
        return {key: value for key, value in body.items() if key not in self._refused}


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
    # Some servers leave the index out when there is one call only.
    index = call.index if call.index is not None else len(reading.calls)
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
    )


def _culprit(message: str, body: dict[str, Any]) -> str | None:
    """The optional part of a request that a 400 complains about, if it is one that was sent.

    A 400 that names nothing is put down to the first optional part: a plain request is tried last.
    """
    lowered = message.lower()
    names = {
        "response_format": ("response_format", "json_schema"),
        "tools": ("tool", "function call"),
    }
    sent = [key for key in _OPTIONAL if key in body]
    for key in sent:
        if any(word in lowered for word in names.get(key, (key,))):
            return key
    too_long = any(word in lowered for word in ("context", "too long", "length", "policy"))
    return None if too_long or not sent else sent[0]


def _mapped(error: openai.OpenAIError) -> ModelError:
    if isinstance(error, openai.APITimeoutError):
        return ModelError("timeout", "the provider did not answer in time")
    if isinstance(error, openai.APIStatusError):
        status = error.status_code
        if status == 429:
            return ModelError("rate_limited", "the provider is busy", _retry_after(error), status)
        if status >= 500 or status == 408:
            return ModelError(
                "unavailable", f"the provider answered {status}", _retry_after(error), status
            )
        return ModelError("refused", f"the provider answered {status}", status=status)
    if isinstance(error, openai.APIConnectionError):
        return ModelError("unavailable", "the provider cannot be reached")
    return ModelError("malformed", f"the provider's answer is unusable: {type(error).__name__}")


def _retry_after(error: openai.APIStatusError) -> float | None:
    raw = error.response.headers.get("retry-after", "")
    try:
        return max(0.0, float(raw))
    except ValueError:
        return None
