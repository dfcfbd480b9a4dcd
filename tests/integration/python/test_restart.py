"""The Python clients and a service that restarts: a slow call, no error, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import grpc
import pytest

from nianlun import AsyncClient, Client, NianlunError, user_message
from nianlun.errors import UnavailableError
from nianlun.patience import Patience
from tests.support.db import Database, Tenant
from tests.support.rig import OneService
from tests.support.stack import Stack

# The retries of the service config alone are over after about a second.
_DOWN_S = 2.5


@pytest.fixture
async def service(database: Database, stack: Stack) -> AsyncIterator[OneService]:
    found = OneService(database, stack, {})
    await found.start()
    yield found
    await found.stop()


async def test_calls_of_the_async_client_wait_and_writes_take_effect_once(
    service: OneService, tenant: Tenant
) -> None:
    async with AsyncClient({"memory": service.target}, key=tenant.key) as client:
        first = await client.append_turn("py-aio", "s-1", [user_message("我住在杭州。")])
        await service.stop()
        meanwhile = asyncio.gather(
            client.append_turn("py-aio", "s-1", [user_message("我在等服务重启。")]),
            client.load_memory("py-aio", "我住在哪里？"),
            *[_lines(client, "py-aio") for _ in range(2)],
        )
        await asyncio.sleep(_DOWN_S)
        assert not meanwhile.done()
        await service.start()
        second, loaded, *_ = await meanwhile
        assert (first.sequence, second.sequence) == (1, 2)
        assert "杭州" in loaded.rendered
        turns = (await client.list_turns("py-aio")).turns
        assert [turn.turn_id for turn in turns] == [second.turn_id, first.turn_id]


async def _lines(client: AsyncClient, user: str) -> list[str]:
    return [line async for line in client.export_user(user)]


async def test_calls_of_the_blocking_client_wait_and_writes_take_effect_once(
    service: OneService, tenant: Tenant
) -> None:
    with Client({"memory": service.target}, key=tenant.key) as client:
        say = partial(client.append_turn, "py-sync", "s-1")
        first = await asyncio.to_thread(say, [user_message("我住在杭州。")])
        await service.stop()
        meanwhile = asyncio.gather(
            asyncio.to_thread(say, [user_message("我在等服务重启。")]),
            asyncio.to_thread(client.load_memory, "py-sync", "我住在哪里？"),
            asyncio.to_thread(lambda: list(client.export_user("py-sync"))),
        )
        await asyncio.sleep(_DOWN_S)
        assert not meanwhile.done()
        await service.start()
        second, loaded, _exported = await meanwhile
        assert (first.sequence, second.sequence) == (1, 2)
        assert "杭州" in loaded.rendered
        turns = (await asyncio.to_thread(client.list_turns, "py-sync")).turns
        assert [turn.turn_id for turn in turns] == [second.turn_id, first.turn_id]


async def test_the_wait_ends_at_the_deadline(service: OneService, tenant: Tenant) -> None:
    targets = {"memory": service.target}
    async with AsyncClient(targets, key=tenant.key) as client:
        with Client(targets, key=tenant.key) as blocking:
            await client.load_memory("u", "?")
            await asyncio.to_thread(blocking.load_memory, "u", "?")
            await service.stop()
            short = client.with_timeout(2.0)
            for call in (
                short.load_memory("u", "?"),
                asyncio.to_thread(blocking.with_timeout(2.0).load_memory, "u", "?"),
            ):
                with pytest.raises(NianlunError) as caught:
                    await call
                assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_what_may_not_be_repeated_does_not_wait(
    service: OneService, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The contract has no such method now: the clients are told of none that may be repeated.
    monkeypatch.setattr("nianlun.aio.Patience", partial(Patience, frozenset()))
    monkeypatch.setattr("nianlun.client.Patience", partial(Patience, frozenset()))
    targets = {"memory": service.target}
    async with AsyncClient(targets, key=tenant.key) as client:
        with Client(targets, key=tenant.key) as blocking:
            await client.load_memory("u", "?")
            await asyncio.to_thread(blocking.load_memory, "u", "?")
            await service.stop()
            for call in (
                client.load_memory("u", "?"),
                asyncio.to_thread(blocking.load_memory, "u", "?"),
            ):
                with pytest.raises(UnavailableError):
                    await call


async def test_a_service_that_was_never_there_is_reported_at_once() -> None:
    nowhere = {"memory": "127.0.0.1:1"}
    async with AsyncClient(nowhere, key="nl_x") as client:
        with Client(nowhere, key="nl_x") as blocking:
            for call in (
                client.load_memory("u", "?"),
                asyncio.to_thread(blocking.load_memory, "u", "?"),
            ):
                with pytest.raises(UnavailableError):
                    await call
            # It was not reached by failing, either.
            with pytest.raises(UnavailableError):
                await client.load_memory("u", "?")


async def test_a_refusal_is_an_answer_too(service: OneService) -> None:
    async with AsyncClient({"memory": service.target}, key="nl_nobody", timeout_s=2.0) as client:
        with pytest.raises(NianlunError, match="UNAUTHENTICATED"):
            await client.load_memory("u", "?")
        await service.stop()
        with pytest.raises(NianlunError) as caught:
            await client.load_memory("u", "?")
        assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
