"""G9 for every RPC: bad input is named as what it is, never a fault, and nothing is stored."""

from __future__ import annotations

import grpc
import pytest
import pytest_asyncio

from nianlun.memory.v1 import memory_pb2 as m
from tests.support import contract, mutate
from tests.support.calls import Outcome, invoke
from tests.support.contract import BY_NAME
from tests.support.requests import DESTRUCTIVE, REQUESTS, Ids
from tests.support.stack import Client, Stack

Code = grpc.StatusCode
FAULTS = {Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS, Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED}
MUTATING = [name for name, rpc in BY_NAME.items() if not rpc.read_only]
PAGED = [
    name for name, rpc in BY_NAME.items() if contract.field(rpc.method.input_type, "page_token")
]

# A user whose id is unusable still gets an answer, without memory and with the reason.
ANSWERED_ANYWAY = {
    (f"orchestrator.{name}", "user_id") for name in ("BuildContext", "Chat", "StreamChat")
}


def _having(*fields: str) -> list[tuple[str, str]]:
    """(RPC, field) for every request that has such a field."""
    return [
        (name, field)
        for name in sorted(REQUESTS)
        for field in fields
        if mutate.with_field(REQUESTS[name](Ids()), field, "x") is not None
    ]


EVERY = pytest.mark.parametrize("name", sorted(BY_NAME))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(stack: Stack) -> Client:
    """One tenant with a collection, so that it is the input that is judged, not its absence."""
    made = stack.client()
    await made.retriever.CreateCollection(REQUESTS["retriever.CreateCollection"](Ids()))
    return made


@pytest.fixture
def fresh(stack: Stack) -> Client:
    """A tenant with nothing in it."""
    return stack.client()


async def _call(
    stack: Stack, name: str, client: Client, request: object, timeout: float = 10.0
) -> Outcome:
    rpc = BY_NAME[name]
    outcome = await invoke(
        stack.channel(rpc.service),
        rpc,
        request,
        metadata=client.tenant.metadata,
        timeout=timeout,
    )
    if outcome.code is Code.UNIMPLEMENTED:
        pytest.skip(f"{name} is not served yet")
    return outcome


def _says_why(outcome: Outcome) -> bool:
    """A failure carries exactly one ErrorInfo of ours, and INVALID_ARGUMENT names its fields."""
    if outcome.ok:
        return True
    named = outcome.code is not Code.INVALID_ARGUMENT or bool(outcome.fields)
    return outcome.infos == 1 and outcome.domain == "nianlun.io" and named


@EVERY
async def test_g9_unknown_enum_values_are_refused(stack: Stack, client: Client, name: str) -> None:
    for field, request in mutate.enums(REQUESTS[name](Ids())):
        outcome = await _call(stack, name, client, request)
        assert outcome.code is Code.INVALID_ARGUMENT, f"{field}: {outcome}"
        assert _says_why(outcome), f"{field}: {outcome}"


@EVERY
async def test_g9_negative_numbers_are_refused(stack: Stack, client: Client, name: str) -> None:
    for field, request in mutate.integers(REQUESTS[name](Ids())):
        outcome = await _call(stack, name, client, request)
        assert outcome.code is Code.INVALID_ARGUMENT, f"{field}: {outcome}"
        assert _says_why(outcome), f"{field}: {outcome}"


@EVERY
async def test_g9_nul_and_control_characters_are_no_fault(
    stack: Stack, client: Client, name: str
) -> None:
    """They are taken out of texts and refused in ids; either way the server keeps its head."""
    for field, request in mutate.strings(REQUESTS[name](Ids()), "a\x00b\x07\u200b\ufeffc"):
        outcome = await _call(stack, name, client, request)
        assert outcome.code not in FAULTS, f"{field}: {outcome}"
        assert _says_why(outcome), f"{field}: {outcome}"


@EVERY
async def test_g9_bytes_that_are_no_text_are_refused(
    stack: Stack, client: Client, name: str
) -> None:
    for raw in (mutate.bad_utf8(REQUESTS[name](Ids())), b"\xff\xff\xff\xff"):
        if raw is not None:
            outcome = await _call(stack, name, client, raw)
            assert outcome.code is Code.INVALID_ARGUMENT, outcome
            assert outcome.reason == "INVALID_ARGUMENT"
            assert outcome.infos == 1


@EVERY
async def test_g9_very_long_texts_are_no_fault(stack: Stack, client: Client, name: str) -> None:
    for field, request in mutate.strings(REQUESTS[name](Ids()), "长" * 300_000):
        outcome = await _call(stack, name, client, request, timeout=30)
        assert outcome.code not in FAULTS, f"{field}: {outcome.code} {outcome.text[:300]}"
        assert _says_why(outcome), f"{field}: {outcome}"


@pytest.mark.parametrize("name", PAGED)
@pytest.mark.parametrize("token", ["garbage", "!!!", "AAAA", "eyJhIjoxfQ", "长", "a" * 5000])
async def test_g9_foreign_page_tokens_are_refused(
    stack: Stack, client: Client, name: str, token: str
) -> None:
    request = mutate.with_field(REQUESTS[name](Ids()), "page_token", token)
    outcome = await _call(stack, name, client, request)
    assert outcome.code is Code.INVALID_ARGUMENT, outcome
    assert outcome.fields == ("page_token",)


async def test_g9_a_page_token_serves_its_own_list_only(stack: Stack, fresh: Client) -> None:
    for user in ("u1", "u2"):
        for session in ("s1", "s2", "s3"):
            await fresh.memory.AppendTurn(
                REQUESTS["memory.AppendTurn"](Ids(user_id=user, session_id=session))
            )
    first = await fresh.memory.ListTurns(m.ListTurnsRequest(user_id="u1", page_size=1))
    token = first.next_page_token
    assert token
    second = m.ListTurnsRequest(user_id="u1", page_size=1, page_token=token)
    assert len((await fresh.memory.ListTurns(second)).turns) == 1
    foreign = (
        ("memory.ListTurns", m.ListTurnsRequest(user_id="u2", page_token=token)),
        ("memory.ListTurns", m.ListTurnsRequest(user_id="u1", session_id="s1", page_token=token)),
        ("memory.ListSessions", m.ListSessionsRequest(user_id="u1", page_token=token)),
    )
    for name, request in foreign:
        outcome = await _call(stack, name, fresh, request)
        assert (outcome.code, outcome.fields) == (Code.INVALID_ARGUMENT, ("page_token",)), outcome
    outcome = await _call(stack, "memory.ListTurns", stack.client(), second)
    assert (outcome.code, outcome.fields) == (Code.INVALID_ARGUMENT, ("page_token",)), outcome


@pytest.mark.parametrize("name", MUTATING)
@pytest.mark.parametrize("value", ["", "x" * 129])
async def test_g9_every_write_needs_a_request_id(
    stack: Stack, client: Client, name: str, value: str
) -> None:
    request = mutate.with_field(REQUESTS[name](Ids()), "request_id", value)
    outcome = await _call(stack, name, client, request)
    assert outcome.code is Code.INVALID_ARGUMENT, outcome
    assert any(field.endswith("request_id") for field in outcome.fields), outcome


@pytest.mark.parametrize(
    ("name", "field"), _having("user_id", "session_id", "document_id", "collection_id")
)
async def test_g9_ids_have_a_length(stack: Stack, client: Client, name: str, field: str) -> None:
    request = mutate.with_field(REQUESTS[name](Ids()), field, "x" * 257)
    outcome = await _call(stack, name, client, request)
    if (name, field) in ANSWERED_ANYWAY:
        assert outcome.ok, outcome
        return
    assert outcome.code is Code.INVALID_ARGUMENT, outcome
    assert any(named.endswith(field) for named in outcome.fields), outcome


@pytest.mark.parametrize(
    ("name", "field"), [case for case in _having("user_id") if case[0].startswith("memory.")]
)
async def test_g9_the_user_cannot_be_left_out(
    stack: Stack, client: Client, name: str, field: str
) -> None:
    request = mutate.with_field(REQUESTS[name](Ids()), field, "")
    outcome = await _call(stack, name, client, request)
    assert outcome.code is Code.INVALID_ARGUMENT, outcome
    assert any(named.endswith(field) for named in outcome.fields), outcome


@pytest.mark.parametrize(
    "name", ["embedder.Embed", "retriever.Search", "memory.AppendTurn", "orchestrator.Chat"]
)
async def test_g9_twenty_megabytes(stack: Stack, client: Client, name: str) -> None:
    request = REQUESTS[name](Ids())
    raw = request.SerializeToString() + b"\xfa\x7f\x80\x80\x80\x0a" + bytes(20 * 1024 * 1024)
    outcome = await _call(stack, name, client, raw, timeout=60)
    assert outcome.code is Code.RESOURCE_EXHAUSTED, outcome
    # The connection is still good.
    good = await _call(stack, name, client, request, timeout=60)
    assert good.code not in FAULTS | {Code.RESOURCE_EXHAUSTED}, good


async def test_g9_nothing_is_stored_when_a_request_is_refused(stack: Stack, fresh: Client) -> None:
    good = REQUESTS["memory.AppendTurn"](Ids())
    for request in (
        mutate.with_field(good, "role", 77),
        mutate.with_field(good, "user_id", "a\x00b"),
        mutate.with_field(good, "time_zone", "Mars/Olympus"),
        mutate.with_field(good, "text", ""),
    ):
        outcome = await _call(stack, "memory.AppendTurn", fresh, request)
        if not outcome.ok:
            assert outcome.code is Code.INVALID_ARGUMENT, outcome
    users = (await fresh.memory.ListUsers(m.ListUsersRequest())).user_ids
    stored = [user for user in users if "\x00" not in user]
    assert stored in ([], ["ab"])


@pytest.mark.parametrize("name", [n for n in MUTATING if n not in DESTRUCTIVE])
async def test_one_request_id_one_result(stack: Stack, fresh: Client, name: str) -> None:
    """The same id gives the same answer; with other content it is refused."""
    new = name == "retriever.CreateCollection"
    if name.startswith("retriever.") and not new:
        await fresh.retriever.CreateCollection(REQUESTS["retriever.CreateCollection"](Ids()))
    request = REQUESTS[name](Ids(collection_id="new") if new else Ids())
    first = await _call(stack, name, fresh, request, timeout=30)
    second = await _call(stack, name, fresh, request, timeout=30)
    assert first.code is second.code, (first, second)
    if not first.ok:
        return
    assert _stable(first) == _stable(second)
    if BY_NAME[name].method.client_streaming:
        return
    changed = mutate.clone(request)
    text = next((v for f, v in mutate.strings(request, "changed") if "request_id" not in f), None)
    if text is not None:
        changed = text
    if name != "memory.UpdateSettings":
        reused = await _call(stack, name, fresh, changed, timeout=30)
        assert reused.code is Code.INVALID_ARGUMENT, reused
        assert reused.reason in {"REQUEST_ID_REUSED", "INVALID_ARGUMENT"}


def _stable(outcome: Outcome) -> list[bytes]:
    """The answer without what says that it was given before."""
    found = []
    for message in outcome.messages:
        copy = mutate.clone(message)
        if contract.field(copy.DESCRIPTOR, "replayed"):
            copy.ClearField("replayed")
        if contract.field(copy.DESCRIPTOR, "event"):
            if not copy.event.HasField("completed"):
                continue
            response = copy.event.completed.response
            found.append(response.run_id.encode() + response.answer.text.encode())
            continue
        found.append(copy.SerializeToString(deterministic=True))
    return found
