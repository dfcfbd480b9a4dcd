"""Calls to a remote model provider: retries with Retry-After, and errors told apart.

Blocking, because it runs in the model thread of the provider.
"""

from __future__ import annotations

import email.utils
import random
import threading
import time
from typing import Any

import httpx

from services.embedder.model import ModelRefused, ModelUnavailable
from services.embedder.settings import RemoteSettings

_RETRYABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# The text itself is at fault: a smaller batch may pass.
_ABOUT_THE_TEXT = frozenset({400, 413, 422})
_BACKOFF_S = 0.25
_BACKOFF_MAX_S = 8.0
_HURRIED_S = 5.0


class Provider:
    """One HTTP API. Thread-safe."""

    def __init__(self, settings: RemoteSettings) -> None:
        if not settings.base_url:
            raise ModelUnavailable("a remote model needs remote.base_url")
        headers = {}
        if settings.api_key is not None:
            headers["authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
        self._retry_s = settings.retry_s
        self._closing = threading.Event()
        self._timeout_s = settings.timeout_s
        try:
            self._client = httpx.Client(
                base_url=settings.base_url.rstrip("/"), headers=headers, timeout=settings.timeout_s
            )
        except httpx.InvalidURL as error:
            raise ModelUnavailable(f"remote.base_url is no address: {error}") from error

    def post(self, path: str, payload: dict[str, Any], *, hurried: bool = False) -> Any:
        """The decoded JSON answer.

        429, 5xx and lost connections are retried for `retry_s` seconds, waiting as Retry-After
        says; `hurried`: not at all, and nothing is waited for longer than 5 seconds. Raises
        ModelRefused where the texts are at fault, ModelUnavailable otherwise.
        """
        give_up = time.monotonic() + (0.0 if hurried else self._retry_s)
        timeout_s = min(self._timeout_s, _HURRIED_S) if hurried else self._timeout_s
        attempt = 0
        while True:
            response, cause = self._try(path, payload, timeout_s)
            if response is not None and response.is_success:
                return _json(response)
            wait = self._judge(response, cause, attempt)
            if time.monotonic() + wait > give_up or self._closing.wait(wait):
                raise ModelUnavailable(f"the provider does not answer: {cause}")
            attempt += 1

    def close(self) -> None:
        """End waits and connections."""
        self._closing.set()
        self._client.close()

    def _try(
        self, path: str, payload: dict[str, Any], timeout_s: float
    ) -> tuple[httpx.Response | None, str]:
        try:
            response = self._client.post(path, json=payload, timeout=timeout_s)
        except httpx.HTTPError as error:
            # Not the connection alone: an answer may also be cut short or wrongly compressed.
            return None, type(error).__name__
        return response, f"status {response.status_code}"

    def _judge(self, response: httpx.Response | None, cause: str, attempt: int) -> float:
        """Seconds to wait before the next attempt; raises if there should be none."""
        backoff = min(_BACKOFF_S * 2.0**attempt, _BACKOFF_MAX_S) * random.uniform(0.5, 1.0)
        if response is None:
            return backoff
        if response.status_code in _ABOUT_THE_TEXT:
            raise ModelRefused(response.status_code, cause)
        if response.status_code not in _RETRYABLE:
            raise ModelUnavailable(f"the provider refused the call: {cause}")
        stated = retry_after(response.headers.get("retry-after", ""))
        return backoff if stated is None else stated


def retry_after(header: str) -> float | None:
    """Seconds that a Retry-After header (seconds or an HTTP date) asks for, or None."""
    try:
        return max(float(header), 0.0)
    except ValueError:
        pass
    try:
        instant = email.utils.parsedate_to_datetime(header)
    except (ValueError, TypeError):
        return None
    return max(instant.timestamp() - time.time(), 0.0)


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        raise ModelUnavailable("the provider's answer is not JSON") from error
