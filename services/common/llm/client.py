"""Chat completions over the `openai` package, plain and streamed, with the caller's deadline.

The package's own retries are off: whoever calls decides, with the time that is left. Failures are
DomainErrors: 429, 5xx, timeouts and broken answers are DEPENDENCY_UNAVAILABLE with the provider's
Retry-After (retryable); other 4xx are PROVIDER_REFUSED (not retryable).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import openai
from openai import AsyncOpenAI

from services.common import deadlines, errors
from services.common.settings import LlmSettings

_DEFAULT_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 600.0


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that the model asks for; `arguments` is JSON text, perhaps broken."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Completion:
    """A whole answer. Token counts are estimates when the provider gave none."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False


@dataclass(frozen=True)
class Delta:
    """A piece of a streamed answer; the last one carries `final` with everything gathered."""

    text: str = ""
    final: Completion | None = None


@dataclass
class _Gathered:
    """State of one stream."""

    text: list[str] = field(default_factory=list)
    calls: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    finish_reason: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class ChatClient:
    """One model of one provider. Close it with `aclose`."""

    def __init__(self, settings: LlmSettings) -> None:
        if not settings.configured:
            raise ValueError("LLM_BASE_URL and LLM_MODEL must be set")
        key = settings.api_key.get_secret_value() if settings.api_key else "none"
        self.model = settings.model or ""
        self._timeout_s = settings.timeout_s
        self._client = AsyncOpenAI(base_url=settings.base_url, api_key=key, max_retries=0)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        temperature: float = 0.0,
        max_tokens: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        timeout_s: float | None = None,
    ) -> Completion:
        """One whole answer within `timeout_s`, the settings' timeout and the call's deadline."""
        arguments = self._arguments(messages, temperature, max_tokens, response_format, tools)
        with _translated():
            reply = await self._client.chat.completions.create(
                **arguments, timeout=self._limit(timeout_s)
            )
        if not isinstance(reply, openai.types.chat.ChatCompletion) or not reply.choices:
            raise _unavailable("the answer has no choices")
        choice = reply.choices[0]
        text = choice.message.content or ""
        asked: Sequence[Any] = getattr(choice.message, "tool_calls", None) or []
        calls = tuple(
            ToolCall(call.id, call.function.name, call.function.arguments)
            for call in asked
            if call.type == "function"
        )
        usage = reply.usage
        return Completion(
            text=text,
            tool_calls=calls,
            finish_reason=str(getattr(choice, "finish_reason", None) or ""),
            prompt_tokens=usage.prompt_tokens if usage else _estimate(messages),
            completion_tokens=usage.completion_tokens if usage else estimate_tokens(text),
            estimated=usage is None,
        )

    async def stream(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        temperature: float = 0.0,
        max_tokens: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        timeout_s: float | None = None,
    ) -> AsyncIterator[Delta]:
        """Deltas as they come; the last one carries `final`.

        Closing the generator closes the connection, which ends the provider's work. A connection
        that
        breaks raises; the caller keeps the deltas it has seen.
        """
        arguments = self._arguments(messages, temperature, max_tokens, response_format, tools)
        gathered = _Gathered()
        with _translated():
            stream = await self._client.chat.completions.create(
                **arguments,
                stream=True,
                stream_options={"include_usage": True},
                timeout=self._limit(timeout_s),
            )
            try:
                async for chunk in stream:
                    piece = _gather(gathered, chunk)
                    if piece:
                        yield Delta(text=piece)
            finally:
                await stream.close()
        if not gathered.finish_reason:
            raise _unavailable("the stream ended without a finish reason")
        yield Delta(final=_final(gathered, messages))

    def _limit(self, timeout_s: float | None) -> float:
        wanted = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        limit = deadlines.timeout(wanted)
        if limit <= 0:
            raise errors.deadline_exceeded("llm")
        return limit

    def _arguments(
        self,
        messages: Sequence[Mapping[str, Any]],
        temperature: float,
        max_tokens: int | None,
        response_format: Mapping[str, Any] | None,
        tools: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "temperature": temperature,
        }
        if max_tokens is not None:
            arguments["max_tokens"] = max_tokens
        if response_format is not None:
            arguments["response_format"] = response_format
        if tools:
            arguments["tools"] = list(tools)
        return arguments


def _gather(into: _Gathered, chunk: Any) -> str:
    usage = getattr(chunk, "usage", None)
    if usage is not None:
        into.prompt_tokens, into.completion_tokens = usage.prompt_tokens, usage.completion_tokens
    if not chunk.choices:
        return ""
    choice = chunk.choices[0]
    into.finish_reason = choice.finish_reason or into.finish_reason
    for part in choice.delta.tool_calls or ():
        known = into.calls.get(part.index, ("", "", ""))
        function = part.function
        into.calls[part.index] = (
            known[0] or part.id or "",
            known[1] + ((function.name or "") if function else ""),
            known[2] + ((function.arguments or "") if function else ""),
        )
    piece = choice.delta.content or ""
    if piece:
        into.text.append(piece)
    return piece


def _final(gathered: _Gathered, messages: Sequence[Mapping[str, Any]]) -> Completion:
    text = "".join(gathered.text)
    estimated = gathered.prompt_tokens is None
    return Completion(
        text=text,
        tool_calls=tuple(ToolCall(*gathered.calls[i]) for i in sorted(gathered.calls)),
        finish_reason=gathered.finish_reason,
        prompt_tokens=_estimate(messages) if estimated else gathered.prompt_tokens or 0,
        completion_tokens=estimate_tokens(text) if estimated else gathered.completion_tokens or 0,
        estimated=estimated,
    )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except openai.APIStatusError as error:
        raise _from_status(error) from error
    except openai.APITimeoutError as error:
        raise _unavailable("timed out") from error
    except (openai.APIError, ValueError) as error:
        # Connection failures, cut streams and bodies that are no JSON.
        raise _unavailable(type(error).__name__) from error


def _from_status(error: openai.APIStatusError) -> errors.DomainError:
    status = error.status_code
    if status in (408, 409, 425, 429) or status >= 500:
        return errors.dependency_unavailable(
            "llm",
            retry_after_s=_retry_after(error.response.headers),
            detail=f"the provider answered {status}",
        )
    return errors.provider_refused(status, detail=f"the provider answered {status}")


def _retry_after(headers: Mapping[str, str]) -> float:
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return min(max(float(headers.get(name, "")) * scale, 0.0), _MAX_RETRY_S)
        except ValueError:
            continue
    return _DEFAULT_RETRY_S


def _unavailable(detail: str) -> errors.DomainError:
    return errors.dependency_unavailable("llm", retry_after_s=_DEFAULT_RETRY_S, detail=detail)


def estimate_tokens(text: str) -> int:
    """Estimated tokens: one per CJK character, one per four other characters, rounded up."""
    wide = sum(1 for c in text if c >= "\u2e80")
    return wide + (len(text) - wide + 3) // 4


def _estimate(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(estimate_tokens(str(message.get("content") or "")) + 4 for message in messages)
