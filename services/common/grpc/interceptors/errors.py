"""The one place where exceptions become statuses. Nothing of an exception's text gets out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import psycopg

from services.common import errors, logs
from services.common.context import current_or_none
from services.common.errors import DomainError
from services.common.grpc.interceptors.base import Interceptor, RpcCall
from services.common.status import DETAILS_KEY, from_rpc_error, to_status


class ErrorsInterceptor(Interceptor):
    """Maps what a handler raises to ``google.rpc.Status`` with exactly one ErrorInfo."""

    def __init__(self) -> None:
        self._log = logs.get("nianlun.errors")

    @asynccontextmanager
    async def around(self, call: RpcCall) -> AsyncIterator[None]:
        """Run the handler; abort with the mapped status when it raises."""
        try:
            yield
        except asyncio.CancelledError as error:
            if _call_was_cancelled():
                raise
            # A task of the handler's own was cancelled and the handler let that escape. Passed on,
            # it would leave the caller waiting until its deadline.
            await self._abort(call, errors.internal("a cancelled inner task escaped"), error)
        except grpc.aio.AbortError:
            self._note_abort(call)
            raise
        except DomainError as error:
            await self._abort(call, error, error)
        except Exception as error:  # noqa: BLE001 - outermost: the caller always gets a status
            await self._abort(call, mapped(error), error)

    async def _abort(self, call: RpcCall, public: DomainError, cause: BaseException) -> None:
        trail = call.trail
        trail.code, trail.reason = public.code.name, public.reason
        trail.detail = public.detail or ""
        if public.reason == "INTERNAL":
            self._log.error("unexpected", rpc=call.name, exc_info=cause, detail=public.detail)
        status = to_status(public)
        metadata: list[tuple[str, str | bytes]] = [(DETAILS_KEY, status.SerializeToString())]
        current = current_or_none()
        if current is not None:
            metadata.append(("x-request-id", current.request_id))
        await call.context.abort(public.code, public.message, tuple(metadata))

    def _note_abort(self, call: RpcCall) -> None:
        """A handler of another house (health, reflection) aborted by itself: report its code."""
        code: object = call.context.code()  # a StatusCode by its type, an int in practice
        names = {item.value[0]: item.name for item in grpc.StatusCode}
        number = code.value[0] if isinstance(code, grpc.StatusCode) else code
        call.trail.code = names.get(number, "UNKNOWN") if isinstance(number, int) else "UNKNOWN"


def mapped(error: Exception) -> DomainError:
    """The public form of an exception that is no DomainError."""
    if isinstance(error, psycopg.OperationalError):
        return errors.database_unavailable(str(error))
    if isinstance(error, grpc.RpcError):
        return from_rpc_error(error, "dependency")
    if isinstance(error, NotImplementedError):
        return errors.unimplemented("This RPC")  # what generated servicers raise
    if isinstance(error, TimeoutError):
        return DomainError("DEADLINE_EXCEEDED", metadata={"step": "call"})
    return errors.internal(type(error).__name__)


def _call_was_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


__all__ = ["ErrorsInterceptor", "mapped"]
