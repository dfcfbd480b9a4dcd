"""I8: without a good key every RPC answers UNAUTHENTICATED and says nothing else; scopes hold."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support import keys
from tests.support.calls import Metadata, invoke
from tests.support.contract import BY_NAME
from tests.support.db import Database
from tests.support.requests import REQUESTS, Ids
from tests.support.stack import AUTH_CACHE_S, Stack

Code = grpc.StatusCode
MUTATING = [name for name, rpc in BY_NAME.items() if not rpc.read_only]
ADMIN = (
    "retriever.StartReembed",
    "retriever.SwitchEmbedding",
    "retriever.Calibrate",
    "memory.ListUsers",
    "memory.UpdateSettings",
)


@pytest.fixture(scope="module")
def bad_keys(database: Database) -> dict[str, Metadata]:
    expired = database.tenant(expires_in_s=-1).metadata
    revoked = database.tenant()
    keys.revoke(database.owner_dsn, revoked.key)
    unknown = keys.random_key()
    return {
        "none": (),
        "empty": (("authorization", ""),),
        "no token": (("authorization", "Bearer"),),
        "other scheme": (("authorization", f"Basic {unknown}"),),
        "malformed": (("authorization", "Bearer key"),),
        "unknown": (("authorization", f"Bearer {unknown}"),),
        "long": (("authorization", f"Bearer nl_{'x' * 4000}"),),
        "quote": (("authorization", "Bearer nl_' OR 1=1 --"),),
        "expired": expired,
        "revoked": revoked.metadata,
        "good and bad": (
            ("authorization", f"Bearer {unknown}"),
            *database.tenant().metadata,
        ),
    }


@pytest.mark.parametrize("name", sorted(BY_NAME))
async def test_i8_bad_keys_learn_nothing(
    stack: Stack, bad_keys: dict[str, Metadata], name: str
) -> None:
    rpc = BY_NAME[name]
    said = set()
    for kind, metadata in bad_keys.items():
        request = REQUESTS[name](Ids())
        outcome = await invoke(stack.channel(rpc.service), rpc, request, metadata=metadata)
        assert outcome.code is Code.UNAUTHENTICATED, f"{kind}: {outcome}"
        assert (outcome.reason, outcome.domain, outcome.infos) == (
            "UNAUTHENTICATED",
            "nianlun.io",
            1,
        )
        assert outcome.fields == ()
        said.add((outcome.text, tuple(outcome.metadata.items())))
    assert len(said) == 1, said


@pytest.mark.parametrize("name", sorted(BY_NAME))
async def test_i8_the_key_is_checked_before_the_request_is_read(stack: Stack, name: str) -> None:
    rpc = BY_NAME[name]
    outcome = await invoke(stack.channel(rpc.service), rpc, b"\xff\xff\xff")
    assert outcome.code in {Code.UNAUTHENTICATED, Code.INVALID_ARGUMENT}, outcome


@pytest.mark.parametrize("name", MUTATING)
async def test_a_reading_key_changes_nothing(stack: Stack, database: Database, name: str) -> None:
    rpc = BY_NAME[name]
    reader = database.tenant(scopes=("read",))
    outcome = await invoke(
        stack.channel(rpc.service), rpc, REQUESTS[name](Ids()), metadata=reader.metadata
    )
    assert outcome.code is Code.PERMISSION_DENIED, outcome
    assert outcome.reason == "PERMISSION_DENIED"
    assert outcome.metadata["scope"] in {"write", "admin"}


@pytest.mark.parametrize("name", ADMIN)
async def test_administration_needs_its_scope(stack: Stack, database: Database, name: str) -> None:
    rpc = BY_NAME[name]
    writer = database.tenant(scopes=("read", "write"))
    outcome = await invoke(
        stack.channel(rpc.service), rpc, REQUESTS[name](Ids()), metadata=writer.metadata
    )
    assert outcome.code is Code.PERMISSION_DENIED, outcome
    assert outcome.metadata == {"scope": "admin"}


@pytest.mark.parametrize("service", ["embedder", "retriever", "memory", "orchestrator"])
async def test_health_needs_no_key(stack: Stack, service: str) -> None:
    stub = health_pb2_grpc.HealthStub(stack.channel(service))
    answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    full_name = next(
        rpc.method.containing_service.full_name
        for rpc in BY_NAME.values()
        if rpc.service == service
    )
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=full_name), timeout=5)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_revoked_key_ends_with_its_cache_time(stack: Stack, database: Database) -> None:
    tenant = database.tenant()
    rpc = BY_NAME["memory.ListUsers"]
    request = REQUESTS[rpc.name](Ids())
    first = await invoke(stack.channel("memory"), rpc, request, metadata=tenant.metadata)
    assert first.ok
    keys.revoke(database.owner_dsn, tenant.key)
    await asyncio.sleep(AUTH_CACHE_S + 0.1)
    again = await invoke(stack.channel("memory"), rpc, request, metadata=tenant.metadata)
    assert again.code is Code.UNAUTHENTICATED
