"""Request ids: taken from the caller's metadata or made, bound to the call, sent back."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.common import context
from services.common.context import CallContext
from services.common.grpc.interceptors.base import Interceptor, RpcCall

HEADER = "x-request-id"
_ACCEPTED = re.compile(r"[A-Za-z0-9._:/-]{1,128}")


class RequestIdInterceptor(Interceptor):
    """Binds the CallContext that everything inside reads. Outermost."""

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Bind a fresh context; anything odd in the header is replaced, not repeated in logs."""
        given = call.metadata.get(HEADER, "")
        request_id = given if _ACCEPTED.fullmatch(given) else uuid.uuid4().hex
        call.context.set_trailing_metadata(((HEADER, request_id),))
        with context.bound(CallContext(rpc=call.name, request_id=request_id)):
            yield
