"""I2, I6: what one tenant or user writes, nobody else reads, changes or removes, by any RPC."""

from __future__ import annotations

import grpc
import pytest

from tests.support import contract
from tests.support.calls import Outcome, invoke
from tests.support.canary import plant
from tests.support.contract import BY_NAME, Rpc
from tests.support.requests import DESTRUCTIVE, REQUESTS, Ids
from tests.support.stack import Client, Stack

Code = grpc.StatusCode
NOTHING_LEARNED = {Code.OK, Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION}

# Where the owner must find the secret, or these tests would prove nothing.
OWNER_FINDS_IT = (
    "retriever.GetDocument",
    "retriever.Search",
    "retriever.OpenDocumentPart",
    "memory.ListTurns",
    "memory.SearchTurns",
    "memory.LoadMemory",
    "memory.ListFacts",
    "memory.GetFactHistory",
    "memory.ListReadings",
    "memory.FindSimilarReadings",
    "memory.ExportUser",
    "orchestrator.BuildContext",
)


def _names_a_user(rpc: Rpc) -> bool:
    """Whether a request says whose data it is about, itself or in its first message field."""
    request = rpc.method.input_type
    nested = [f.message_type for f in request.fields if f.name in {"input", "header"}]
    return any(contract.field(message, "user_id") for message in (request, *nested))


USER_SCOPED = [name for name, rpc in BY_NAME.items() if _names_a_user(rpc)]


async def _call(stack: Stack, name: str, ids: Ids, client: Client) -> Outcome:
    rpc = BY_NAME[name]
    return await invoke(
        stack.channel(rpc.service), rpc, REQUESTS[name](ids), metadata=client.tenant.metadata
    )


async def _owner_still_finds_it(stack: Stack, owner: Client, ids: Ids) -> None:
    for name in OWNER_FINDS_IT:
        outcome = await _call(stack, name, ids.stranger(), owner)
        if outcome.code is not Code.UNIMPLEMENTED:
            assert outcome.holds(ids.secret), f"{name}: {outcome}"


def test_i2_every_rpc_is_in_the_list() -> None:
    assert set(REQUESTS) == set(BY_NAME)


async def test_the_owner_finds_the_secret(stack: Stack, planted: tuple[Client, Ids]) -> None:
    await _owner_still_finds_it(stack, *planted)


@pytest.fixture(scope="module")
def other(stack: Stack) -> Client:
    """Another tenant."""
    return stack.client()


@pytest.mark.parametrize("name", sorted(BY_NAME))
async def test_i2_another_tenant_learns_nothing(
    stack: Stack, planted: tuple[Client, Ids], other: Client, name: str
) -> None:
    _, ids = planted
    outcome = await _call(stack, name, ids.stranger(), other)
    assert not outcome.holds(ids.secret)
    assert outcome.code in NOTHING_LEARNED | {Code.UNIMPLEMENTED}, outcome


@pytest.mark.parametrize("name", USER_SCOPED)
async def test_i2_another_user_learns_nothing(
    stack: Stack, planted: tuple[Client, Ids], name: str
) -> None:
    owner, ids = planted
    stranger = ids.stranger(user_id=f"{ids.user_id}-not")
    outcome = await _call(stack, name, stranger, owner)
    if name.startswith("orchestrator."):
        # The collection belongs to the tenant: the document may be cited, the memory may not.
        outcome = _without_evidence(outcome)
    assert not outcome.holds(ids.secret), outcome
    assert outcome.code in NOTHING_LEARNED | {Code.UNIMPLEMENTED}, outcome


async def test_i2_naming_another_tenant_in_metadata_changes_nothing(
    stack: Stack, planted: tuple[Client, Ids]
) -> None:
    owner, ids = planted
    metadata = (
        *stack.client().tenant.metadata,
        ("x-nianlun-tenant", owner.tenant.tenant_id),
    )
    for name in OWNER_FINDS_IT:
        rpc = BY_NAME[name]
        request = REQUESTS[name](ids.stranger())
        outcome = await invoke(stack.channel(rpc.service), rpc, request, metadata=metadata)
        assert not outcome.holds(ids.secret), name


async def test_i6_nothing_of_another_tenant_can_be_removed_or_changed(
    stack: Stack, planted: tuple[Client, Ids]
) -> None:
    owner, ids = planted
    other = stack.client()
    changing = [name for name, rpc in BY_NAME.items() if not rpc.read_only]
    for name in (*[n for n in changing if n not in DESTRUCTIVE], *DESTRUCTIVE):
        outcome = await _call(stack, name, ids.stranger(), other)
        assert not outcome.holds(ids.secret), name
    await _owner_still_finds_it(stack, owner, ids)


@pytest.mark.parametrize(
    "name",
    [
        "retriever.GetDocument",
        "retriever.DeleteDocuments",
        "retriever.GetCollection",
        "retriever.DeleteCollection",
        "retriever.UpsertDocuments",
        "retriever.GetJob",
        "retriever.CancelJob",
        "retriever.ReplayJob",
        "retriever.WatchJob",
        "memory.DeleteTurn",
        "memory.CorrectFact",
        "memory.RetractFact",
        "memory.CorrectEpisode",
        "memory.DeleteEpisode",
        "memory.GetJob",
        "memory.CancelJob",
        "memory.ReplayJob",
        "memory.WatchJob",
        "memory.EndSession",
        "orchestrator.GetRun",
        "orchestrator.SubmitFeedback",
    ],
)
async def test_i6_an_id_of_another_tenant_is_not_found(
    stack: Stack, planted: tuple[Client, Ids], name: str
) -> None:
    """In the same words as an id that does not exist at all."""
    _, ids = planted
    other = stack.client()
    foreign = await _call(stack, name, ids.stranger(), other)
    if foreign.code is Code.UNIMPLEMENTED:
        pytest.skip(f"{name} is not served yet")
    assert foreign.code is Code.NOT_FOUND, foreign
    assert foreign.reason == "NOT_FOUND"
    unknown = await _call(stack, name, Ids(), other)
    assert (unknown.code, unknown.text, unknown.metadata) == (
        foreign.code,
        foreign.text,
        foreign.metadata,
    )


async def test_i6_another_user_cannot_remove_by_id(stack: Stack) -> None:
    owner = stack.client()
    ids = await plant(owner)
    stranger = ids.stranger(user_id=f"{ids.user_id}-not")
    for name in ("DeleteTurn", "CorrectFact", "RetractFact", "DeleteEpisode", "EndSession"):
        outcome = await _call(stack, f"memory.{name}", stranger, owner)
        assert outcome.code in {Code.NOT_FOUND, Code.UNIMPLEMENTED}, f"{name}: {outcome}"
    for name in ("DeleteReading", "EraseSession", "EraseUser"):
        await _call(stack, f"memory.{name}", stranger, owner)
    await _owner_still_finds_it(stack, owner, ids)


def _without_evidence(outcome: Outcome) -> Outcome:
    for message in outcome.messages:
        for place in (message, getattr(message, "answer", None)):
            if place is not None and contract.field(place.DESCRIPTOR, "evidence"):
                place.ClearField("evidence")
    return outcome
