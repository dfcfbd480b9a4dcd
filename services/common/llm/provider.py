"""One model of one OpenAI-compatible provider: the connection, and what goes wrong on it.

`openai` is imported with the first call, so that a service without a model never loads it. The
package's own retries are off: whoever calls decides, with the time that is left.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from services.common.llm.observe import Usage, model_call
from services.common.telemetry import Telemetry

if TYPE_CHECKING:
    import openai

_OPTIONAL: Final = ("response_format", "tools", "temperature", "stream_options", "max_tokens")
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "response_format": ("response_format", "json_schema", "json_object"),
    "tools": ("tool", "function call"),
}
# A 400 about these is about the messages, not about an optional part.
_ABOUT_MESSAGES: Final = ("context", "too long", "length", "policy")
_BUSY: Final = frozenset({408, 409, 425})
_MAX_RETRY_S: Final = 600.0

Kind = Literal["timeout", "rate_limited", "unavailable", "refused", "cut", "malformed"]


@dataclass
class ModelError(Exception):
    """A model call that failed. `retryable` says whether the same call may work later."""

    kind: Kind
    message: str
    retry_after_s: float | None = None
    status: int | None = None

    @property
    def retryable(self) -> bool:
        """Whether trying again makes sense."""
        return self.kind != "refused"

    def __str__(self) -> str:
        """The kind and the message, for logs."""
        return f"{self.kind}: {self.message}"


class Provider:
    """Chat completions of one model.

    What a provider refuses (tools, response_format, temperature, stream_options) is left out from
    then on: the refusal is learnt once per process from its 400.
    """

    def __init__(
        self, base_url: str, api_key: str, model: str, telemetry: Telemetry | None = None
    ) -> None:
        self.model = model
        self._telemetry = telemetry
        self._base_url = base_url
        self._api_key = api_key
        self._made: openai.AsyncOpenAI | None = None
        self._refused: set[str] = set()
        self._renamed: dict[str, str] = {}

    async def close(self) -> None:
        """Close the connections."""
        if self._made is not None:
            await self._made.close()

    def observed(self) -> contextlib.AbstractContextManager[Usage]:
        """A span and metrics around one call, of whose tokens the caller tells."""
        return model_call(self._telemetry, self.model)

    async def create(self, body: Mapping[str, Any], timeout_s: float) -> Any:
        """A completion, or a stream of chunks where `body` asks for one; the model is added.

        Failures are those of the `openai` package: call it inside `failures`.
        """
        import openai

        wanted = {self._renamed.get(k, k): v for k, v in body.items() if k not in self._refused}
        wanted["model"] = self.model
        left_out: set[str] = set()
        renamed: dict[str, str] = {}
        while True:
            try:
                # A provider may not know what the package's types know.
                create: Any = self._client().chat.completions.create
                answer = await create(**wanted, timeout=timeout_s)
            except openai.BadRequestError as error:
                culprit = _culprit(str(error), wanted)
                if culprit is None:
                    raise
                value = wanted.pop(culprit)
                if culprit == "max_tokens" and "max_completion_tokens" in str(error):
                    # What reasoning models call it.
                    wanted["max_completion_tokens"] = value
                    renamed[culprit] = "max_completion_tokens"
                else:
                    left_out.add(culprit)
            else:
                # Only what a later success has shown to be the trouble is left out for good.
                self._refused |= left_out
                self._renamed |= renamed
                return answer

    def _client(self) -> openai.AsyncOpenAI:
        if self._made is None:
            import openai

            self._made = openai.AsyncOpenAI(
                base_url=self._base_url, api_key=self._api_key, max_retries=0
            )
        return self._made


@contextlib.contextmanager
def failures() -> Iterator[None]:
    """Turns what the `openai` package and its transport raise into ModelError."""
    import httpx2
    import openai

    try:
        yield
    except openai.APITimeoutError as error:
        raise ModelError("timeout", "the provider did not answer in time") from error
    except openai.APIStatusError as error:
        raise _of_status(error) from error
    except openai.APIConnectionError as error:
        raise ModelError("unavailable", "the provider cannot be reached") from error
    except openai.OpenAIError as error:
        kind = type(error).__name__
        raise ModelError("malformed", f"the provider's answer is unusable: {kind}") from error
    except (TimeoutError, httpx2.TimeoutException) as error:
        raise ModelError("timeout", "the provider stopped sending") from error
    except (httpx2.HTTPError, httpx2.StreamError, ValueError, OSError) as error:
        # A broken body or connection after the headers; `openai` does not wrap these.
        raise ModelError("cut", f"the answer broke off: {type(error).__name__}") from error


def _of_status(error: openai.APIStatusError) -> ModelError:
    status = error.status_code
    wait = _retry_after(error.response.headers)
    if status == 429:
        return ModelError("rate_limited", "the provider is busy", wait, status)
    if status >= 500 or status in _BUSY:
        return ModelError("unavailable", f"the provider answered {status}", wait, status)
    return ModelError("refused", f"the provider answered {status}", status=status)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from milliseconds, seconds or a date; None where nothing usable is said."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with contextlib.suppress(ValueError):
            # `max` first: a NaN becomes 0.
            return min(max(0.0, float(headers.get(name, "")) * scale), _MAX_RETRY_S)
    with contextlib.suppress(ValueError, OverflowError):
        when = parsedate_to_datetime(headers.get("retry-after", ""))
        return min(max(0.0, when.timestamp() - time.time()), _MAX_RETRY_S)
    return None


def _culprit(message: str, body: Mapping[str, Any]) -> str | None:
    """The optional part of a request that a 400 complains about, if it is one that was sent.

    A 400 that names nothing is put down to the first optional part: a plain request is tried last.
    """
    lowered = message.lower()
    sent = [key for key in _OPTIONAL if key in body]
    for key in sent:
        if any(word in lowered for word in _NAMES.get(key, (key,))):
            return key
    if not sent or any(word in lowered for word in _ABOUT_MESSAGES):
        return None
    return sent[0]
