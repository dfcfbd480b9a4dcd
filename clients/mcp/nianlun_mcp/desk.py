"""Calls to the services on behalf of a caller, and the check of a key."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from typing import Any, ParamSpec, TypeVar

import grpc
from google.protobuf.message import Message as ProtoMessage
from mcp.server.mcpserver.exceptions import ToolError

from nianlun import AsyncClient, NianlunError
from nianlun.errors import UnauthenticatedError
from nianlun.operations import knowledge, upkeep
from nianlun.operations.core import Operation
from nianlun_mcp.callers import Caller, RefusedError
from nianlun_mcp.settings import McpSettings

P = ParamSpec("P")
Response = TypeVar("Response", bound=ProtoMessage)

_GOOD_S = 30.0
_GOOD_MAX = 1_024
_CHECK_S = 5.0


class Desk:
    """One set of channels, without a key: each call is made with the key of its caller."""

    def __init__(self, settings: McpSettings) -> None:
        own = settings.connection
        self._client = AsyncClient(
            own.targets,
            key="",
            timeout_s=own.timeout_s,
            tls=own.tls,
            root_certificates=own.root_certificates,
        )
        self._patient = self._client.with_timeout(settings.ask_timeout_s)
        self._quick = self._client.with_timeout(_CHECK_S)
        self._good: OrderedDict[str, float] = OrderedDict()

    async def close(self) -> None:
        """Close the channels."""
        await self._client.close()

    async def call(
        self,
        caller: Caller,
        operation: Operation[P, Response],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Response:
        """One call to a service; a failure is a ToolError that a model and a person can read."""
        return await self._send(self._client, caller, operation, operation.build(*args, **kwargs))

    async def ask(
        self, caller: Caller, operation: Operation[P, Response], request: ProtoMessage
    ) -> Response:
        """The same, with the patience that a language model needs."""
        return await self._send(self._patient, caller, operation, request)

    async def check(self, key: str) -> None:
        """Refuse a key that the services do not accept; an accepted one is good for 30 s.

        Raises:
            RefusedError: the key is unknown, expired or revoked (401), or nobody can say (503).
        """
        digest = hashlib.sha256(key.encode()).hexdigest()
        if self._good.get(digest, 0.0) > time.monotonic():
            return
        looks: tuple[Operation[[], Any], ...] = (upkeep.get_settings, knowledge.list_recipes)
        for operation in looks:
            try:
                await self._quick.call(operation, operation.build(), key=key)
            except UnauthenticatedError:
                self._good.pop(digest, None)
                raise RefusedError(401, "the key is unknown, expired or revoked") from None
            except NianlunError as error:
                if error.code is not grpc.StatusCode.PERMISSION_DENIED:
                    continue  # this service cannot say; the other one may
            self._good[digest] = time.monotonic() + _GOOD_S
            self._good.move_to_end(digest)
            while len(self._good) > _GOOD_MAX:
                self._good.popitem(last=False)
            return
        raise RefusedError(503, "the services cannot be reached, so no key can be checked")

    async def _send(
        self,
        client: AsyncClient,
        caller: Caller,
        operation: Operation[P, Response],
        request: ProtoMessage,
    ) -> Response:
        try:
            return await client.call(operation, request, key=caller.key)
        except NianlunError as error:
            raise ToolError(_readable(error)) from error


def _readable(error: NianlunError) -> str:
    """What went wrong and what may help, in one or two sentences."""
    code = error.code
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return "The key was refused: it is unknown, expired or revoked. The operator must renew it."
    if code is grpc.StatusCode.PERMISSION_DENIED:
        scope = error.metadata.get("scope", "another")
        return f"The key does not allow this: it needs scope {scope}."
    if code is grpc.StatusCode.INVALID_ARGUMENT and error.violations:
        what = "; ".join(f"{each.field}: {each.description}" for each in error.violations[:4])
        return f"The request cannot be used: {what}."
    if code is grpc.StatusCode.NOT_FOUND:
        named = " ".join(error.resource) if error.resource is not None else "thing"
        return f"There is no such {named}."
    if error.retryable:
        wait = f" in {error.retry_after_s:.0f} s" if error.retry_after_s else " later"
        return f"Nianlun cannot do this now ({code.name.lower()}); try again{wait}."
    return f"{str(error).removesuffix('.')}."
