"""Whole chat completions, with the caller's deadline, for background work.

Failures are DomainErrors: 429, 5xx, timeouts and broken answers are DEPENDENCY_UNAVAILABLE with the
provider's Retry-After (retryable); other 4xx are PROVIDER_REFUSED (not retryable).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.common import deadlines, errors
from services.common.llm.provider import ModelError, Provider, failures
from services.common.settings import LlmSettings
from services.common.telemetry import Telemetry

_DEFAULT_RETRY_S: Final = 1.0


@dataclass(frozen=True)
class Completion:
    """A whole answer. Token counts are estimates when the provider gave none."""

    text: str
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False


class ChatClient:
    """One model of one provider. Close it with `aclose`."""

    def __init__(self, settings: LlmSettings, telemetry: Telemetry | None = None) -> None:
        if not settings.configured:
            raise ValueError("LLM_BASE_URL and LLM_MODEL must be set")
        self._provider = provider_of(settings, telemetry)
        self._timeout_s = settings.timeout_s

    @property
    def model(self) -> str:
        """The model asked for."""
        return self._provider.model

    async def aclose(self) -> None:
        """Close the connections."""
        await self._provider.close()

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        temperature: float = 0.0,
        max_tokens: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Completion:
        """One whole answer within `timeout_s`, the settings' timeout and the call's deadline."""
        body: dict[str, Any] = {"messages": list(messages), "temperature": temperature}
        if max_tokens is not None:
            body["max_tokens"] = max_tokens
        if response_format is not None:
            body["response_format"] = response_format
        limit = self._limit(timeout_s)
        with self._provider.observed() as seen:
            try:
                with failures():
                    # The transport's timeout is one of silence; one that trickles must end too.
                    async with asyncio.timeout(limit):
                        created = await self._provider.create(body, limit)
            except ModelError as error:
                raise _domain_error(error) from error
            answer = _completion(created.reply, messages)
            if not answer.estimated:
                seen.prompt_tokens = answer.prompt_tokens
                seen.completion_tokens = answer.completion_tokens
        return answer

    def _limit(self, timeout_s: float | None) -> float:
        wanted = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        limit = deadlines.timeout(wanted)
        if limit <= 0:
            raise errors.deadline_exceeded("llm")
        return limit


def provider_of(settings: LlmSettings, telemetry: Telemetry | None = None) -> Provider:
    """The provider that the settings name."""
    key = settings.api_key.get_secret_value() if settings.api_key else "none"
    return Provider(settings.base_url or "", key, settings.model or "", telemetry)


def _completion(reply: Any, messages: Sequence[Mapping[str, Any]]) -> Completion:
    # A body that is no completion comes as a string or with missing parts.
    choices: Any = getattr(reply, "choices", None) or [None]
    message = getattr(choices[0], "message", None)
    if message is None:
        raise _unavailable("the answer has no choices")
    text = message.content or ""
    usage = reply.usage
    return Completion(
        text=text,
        finish_reason=str(getattr(choices[0], "finish_reason", None) or ""),
        prompt_tokens=usage.prompt_tokens if usage else _estimate(messages),
        completion_tokens=usage.completion_tokens if usage else estimate_tokens(text),
        estimated=usage is None,
    )


def _domain_error(error: ModelError) -> errors.DomainError:
    if error.kind == "refused":
        return errors.provider_refused(error.status or 0, detail=error.message)
    return _unavailable(error.message, error.retry_after_s)


def _unavailable(detail: str, retry_after_s: float | None = None) -> errors.DomainError:
    wait = _DEFAULT_RETRY_S if retry_after_s is None else retry_after_s
    return errors.dependency_unavailable("llm", retry_after_s=wait, detail=detail)


def estimate_tokens(text: str) -> int:
    """Estimated tokens: one per CJK character, one per four other characters, rounded up."""
    wide = sum(1 for c in text if c >= "\u2e80")
    return wide + (len(text) - wide + 3) // 4


def _estimate(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(estimate_tokens(str(message.get("content") or "")) + 4 for message in messages)
