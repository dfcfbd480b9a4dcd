"""Work that would keep the event loop busy goes to an executor; for short work that costs more than
it saves."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def off_loop(
    executor: Executor, busy: bool, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """Runs `work` in the executor when it is expected to take longer than a hand-over."""
    if not busy:
        return work(*args, **kwargs)
    call = functools.partial(work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(executor, call)
