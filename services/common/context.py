"""The current call: who calls what, under which id, until when. Set once, at the edge."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from services.common import errors

if TYPE_CHECKING:
    from services.common.deadlines import Deadline


@dataclass(frozen=True)
class Caller:
    """An authenticated caller. ``credential`` is the raw bearer key, forwarded downstream."""

    tenant_id: str
    key_id: str
    scopes: frozenset[str]
    credential: str

    def __repr__(self) -> str:
        """Everything but the key."""
        return f"Caller(tenant_id={self.tenant_id!r}, key_id={self.key_id!r})"


@dataclass(frozen=True)
class CallContext:
    """One call. ``rpc`` is ``package.Service/Method`` or, for background work, the job's kind."""

    rpc: str
    request_id: str
    caller: Caller | None = None
    deadline: Deadline | None = None


_CURRENT: contextvars.ContextVar[CallContext | None] = contextvars.ContextVar(
    "nianlun_call", default=None
)


def current() -> CallContext:
    """The current call. Raises LookupError outside of one."""
    call = _CURRENT.get()
    if call is None:
        raise LookupError("there is no current call")
    return call


def current_or_none() -> CallContext | None:
    """The current call, or None outside of one."""
    return _CURRENT.get()


def current_caller() -> Caller:
    """The authenticated caller of the current call; UNAUTHENTICATED when there is none."""
    call = _CURRENT.get()
    if call is None or call.caller is None:
        raise errors.unauthenticated("no caller is bound to the current call")
    return call.caller


def current_deadline() -> Deadline | None:
    """The deadline of the current call, if it has one."""
    call = _CURRENT.get()
    return None if call is None else call.deadline


@contextmanager
def bound(call: CallContext) -> Iterator[CallContext]:
    """Make ``call`` the current call inside the block."""
    token = _CURRENT.set(call)
    try:
        yield call
    finally:
        _CURRENT.reset(token)


@contextmanager
def narrowed(deadline: Deadline) -> Iterator[CallContext]:
    """Give the block its own, earlier deadline; everything called inside sees it."""
    call = current()
    if call.deadline is not None and call.deadline.at < deadline.at:
        deadline = call.deadline
    with bound(replace(call, deadline=deadline)) as inner:
        yield inner
