"""One model of one OpenAI-compatible provider: the connection, and what goes wrong on it.

`openai` is imported with the first call, so that a service without a model never loads it. The
package's own retries are off: whoever calls decides, with the time that is left.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from services.common import logs
from services.common.llm.observe import Usage, model_call
from services.common.llm.refusals import Refusal, refusal
from services.common.telemetry import Telemetry

if TYPE_CHECKING:
    import openai

_LONG_NAME: Final = "max_completion_tokens"
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


@dataclass(frozen=True)
class Created:
    """A provider's reply: a completion or a stream. `left_out` names the optional parts of the
    request that it was made without, as the caller called them.
    """

    reply: Any
    left_out: frozenset[str] = frozenset()


class Provider:
    """Chat completions of one model.

    An optional part (tools, response_format, temperature, max_tokens, stream_options) that the
    provider refuses with a 400 is left out. Where the 400 says that the provider does not know the
    part, this is remembered for the life of the process; where it was about a value, which may be
    one caller's, it holds for that call alone.
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
        self._log = logs.get(__name__)

    async def close(self) -> None:
        """Close the connections."""
        if self._made is not None:
            await self._made.close()

    def observed(self) -> contextlib.AbstractContextManager[Usage]:
        """A span and metrics around one call, of whose tokens the caller tells."""
        return model_call(self._telemetry, self.model)

    async def create(self, body: Mapping[str, Any], timeout_s: float) -> Created:
        """A completion, or a stream of chunks where `body` asks for one; the model is added.

        Failures are those of the `openai` package: call it inside `failures`.
        """
        import openai

        wanted = {self._renamed.get(k, k): v for k, v in body.items() if k not in self._refused}
        wanted["model"] = self.model
        refused: list[Refusal] = []
        renamed: dict[str, str] = {}
        while True:
            try:
                # A provider may not know what the package's types know.
                create: Any = self._client().chat.completions.create
                reply = await create(**wanted, timeout=timeout_s)
            except openai.BadRequestError as error:
                found = refusal(error, wanted)
                if found is None:
                    raise
                value = wanted.pop(found.part)
                if found.part == "max_tokens" and _LONG_NAME in str(error):
                    # What reasoning models call it.
                    wanted[_LONG_NAME] = value
                    renamed["max_tokens"] = _LONG_NAME
                else:
                    part = "max_tokens" if found.part == _LONG_NAME else found.part
                    refused.append(Refusal(part, found.lasting))
            else:
                # Only what a later success has shown to be the trouble is remembered.
                if _LONG_NAME in wanted:
                    self._renamed |= renamed
                self._remember(refused)
                left_out = {one.part for one in refused} | (self._refused & body.keys())
                return Created(reply, frozenset(left_out))

    def _remember(self, refused: Sequence[Refusal]) -> None:
        for one in refused:
            # Not what the provider wrote: it may quote what a user wrote.
            self._log.warning(
                "model_parameter_left_out",
                model=self.model,
                parameter=one.part,
                until="restart" if one.lasting else "this call",
            )
            if one.lasting:
                self._refused.add(one.part)

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
