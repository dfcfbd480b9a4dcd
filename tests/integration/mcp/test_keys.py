"""Keys and users: nothing is answered without a good key, and nobody is taken for another."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.integration.mcp.conftest import Opener, Server, over_stdio, run, serving, text_of
from tests.support import keys
from tests.support.db import Tenant
from tests.support.stack import AUTH_CACHE_S, Stack

_LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
_HEADERS = {"accept": "application/json, text/event-stream", "x-nianlun-user": "u"}


async def _post(server: Server, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient() as http:
        return await http.post(server.url, json=_LIST, headers=_HEADERS | named)


async def test_i8_over_http_without_a_good_key_is_401(
    http_server: Server, stack: Stack, tenant: Tenant
) -> None:
    expired = stack.database.tenant(expires_in_s=-1)
    bad = ["", "Bearer", "Basic abc", f"Bearer {keys.random_key()}"]
    bad += [f"Bearer {expired.key}", f"Bearer {tenant.key} x", f"Bearer {'x' * 300}"]
    for authorization in bad:
        answer = await _post(http_server, authorization=authorization)
        assert answer.status_code == 401, authorization
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "tools" not in answer.text
        assert set(answer.json()) == {"error"}
    assert (await _post(http_server, authorization=f"Bearer {tenant.key}")).status_code == 200


async def test_a_revoked_key_ends_the_tools_too(
    http_server: Server, stack: Stack, tenant: Tenant
) -> None:
    async with http_server.client(tenant.key, "u") as client:
        assert not (await client.call_tool("recall", {})).is_error
        keys.revoke(stack.database.owner_dsn, tenant.key)
        await asyncio.sleep(AUTH_CACHE_S + 0.3)
        # The guard may believe in it for up to 30 s; the services do not.
        refused = await client.call_tool("recall", {})
        assert refused.is_error
        assert "key was refused" in text_of(refused)


async def test_a_key_that_may_only_read(opened: Opener, stack: Stack) -> None:
    reader = stack.database.tenant(scopes=("read",))
    async with opened(reader.key, "u") as client:
        assert not (await client.call_tool("recall", {})).is_error
        refused = await client.call_tool("remember", {"text": "I like tea."})
        assert refused.is_error
        assert "scope write" in text_of(refused)


async def test_the_user_comes_from_the_connection(
    opened: Opener, tenant: Tenant, other_tenant: Tenant
) -> None:
    async with opened(tenant.key, "a_b") as client:
        await client.call_tool("remember", {"text": "My canary is kestrel."})
        # An argument that the schema does not offer changes nothing.
        await client.call_tool(
            "remember", {"text": "My second canary is osprey.", "user_id": "victim"}
        )
        own = text_of(await client.call_tool("recall", {"query": "canary", "user_id": "victim"}))
        assert "kestrel" in own
        assert "osprey" in own
    for key, user in ((tenant.key, "aXb"), (tenant.key, "victim"), (other_tenant.key, "a_b")):
        async with opened(key, user) as client:
            seen = text_of(await client.call_tool("recall", {"query": "canary"}))
            assert seen == "Nothing is known about this user yet.", (user, seen)


async def test_a_request_without_a_user_is_refused(http_server: Server, tenant: Tenant) -> None:
    answer = await _post(http_server, authorization=f"Bearer {tenant.key}", x_nianlun_user="")
    assert answer.status_code == 400
    assert "X-Nianlun-User" in answer.json()["error"]


async def test_a_server_of_one_user_serves_no_other(stack: Stack, tenant: Tenant) -> None:
    async with serving(stack, "--user", "林") as server:
        authorization = f"Bearer {tenant.key}"
        assert (await _post(server, authorization=authorization)).status_code == 403
        async with server.client(tenant.key) as client:
            await client.call_tool("remember", {"text": "我喜欢喝普洱茶。"})
            assert "普洱" in text_of(await client.call_tool("recall", {"query": "喝什么茶"}))
    async with over_stdio(stack, tenant.key, "林", mode="legacy") as client:
        assert "普洱" in text_of(await client.call_tool("recall", {"query": "喝什么茶"}))


async def test_foreign_hosts_and_origins_are_not_answered(
    http_server: Server, tenant: Tenant
) -> None:
    authorization = f"Bearer {tenant.key}"
    rebound = await _post(http_server, authorization=authorization, host="evil.example")
    assert rebound.status_code in (403, 421)
    crossed = await _post(http_server, authorization=authorization, origin="https://evil.example")
    assert crossed.status_code == 403


async def test_a_body_above_the_limit_is_refused(http_server: Server, tenant: Tenant) -> None:
    async with httpx.AsyncClient() as http:
        answer = await http.post(
            http_server.url,
            content=b'{"jsonrpc": "' + b"x" * 2_000_000 + b'"}',
            headers=_HEADERS
            | {"authorization": f"Bearer {tenant.key}", "content-type": "application/json"},
        )
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("environment", "options", "told"),
    [
        ({}, (), "set NIANLUN_API_KEY"),
        ({"NIANLUN_API_KEY": "two words"}, (), "set NIANLUN_API_KEY"),
        ({"NIANLUN_API_KEY": keys.random_key(), "NIANLUN_MCP_USER": ""}, (), "NIANLUN_MCP_USER"),
        ({"NIANLUN_API_KEY": keys.random_key(), "NIANLUN_MCP_USER": "u"}, (), "unknown, expired"),
        ({}, ("--http", "8090"), "HOST:PORT"),
        ({}, ("--http", "0.0.0.0:0"), "--allow-host"),
        ({}, ("--local", "--home", "/nonexistent"), "make serve"),
    ],
)
async def test_it_does_not_start_without_what_it_needs(
    stack: Stack, environment: dict[str, str], options: tuple[str, ...], told: str
) -> None:
    code, err = await run(stack, *options, **environment)
    assert code == 2
    assert told in err
    assert "Traceback" not in err
