"""What counts as the same value or the same note, in the database and after an upgrade."""

from __future__ import annotations

from nianlun.memory.v1 import memory_pb2 as pb
from services.memory import profile
from services.memory.keys import plain_key
from tests.integration.memory.calls import Memory, rid
from tests.support.db import Database, Tenant


async def put(memory: Memory, attribute: str, value: str) -> pb.Fact:
    request = pb.PutFactRequest(
        request_id=rid(), user_id="u", kind=pb.FACT_KIND_FACT, attribute=attribute, value=value
    )
    reply = await memory.stub.PutFact(request)
    fact: pb.Fact = reply.fact
    return fact


async def values(memory: Memory) -> set[str]:
    return {fact.value for fact in await memory.facts("u")}


async def test_values_and_notes_of_other_numbers_stay_apart(memory: Memory) -> None:
    said = ("我们用 Go 1.2.1", "我们用 Go 1.21", "预算是1.5万元", "预算是15万元")
    for number, text in enumerate(said):
        await memory.say("u", text, session=f"s{number}")
    await memory.settled()
    assert await values(memory) == {"Go 1.2.1", "Go 1.21"}
    notes = [episode.note.partition("：")[2] for episode in await memory.episodes("u")]
    assert sorted(notes) == sorted(said)


async def test_a_note_that_differs_in_one_word_is_kept(memory: Memory) -> None:
    said = "周会改到每周{}下午两点在研发楼二层东侧会议室开，由小李主持并且负责整理会议纪要发到群里"
    await memory.say("u", said.format("三"), session="s1")
    await memory.say("u", said.format("四"), session="s2")
    await memory.say("u", said.format("四") + "。", session="s3")
    await memory.settled()
    notes = [episode.note for episode in await memory.episodes("u")]
    assert sorted("周四" in note for note in notes) == [False, True]
    assert "每周四" in (await memory.load("u", "周会在星期几开", session="s4")).rendered


async def test_a_tombstone_of_one_number_does_not_bury_another(memory: Memory) -> None:
    old = await put(memory, "uses", "Go 1.21")
    await memory.stub.RetractFact(
        pb.RetractFactRequest(request_id=rid(), user_id="u", fact_id=old.fact_id)
    )
    await memory.say("u", "我们用 Go 1.2.1", event_time=old.valid_from)
    await memory.say("u", "我们用 Go 1.21", event_time=old.valid_from)
    await memory.settled()
    assert await values(memory) == {"Go 1.2.1"}


async def test_records_of_an_earlier_version_are_given_their_key(
    memory: Memory, database: Database, tenant: Tenant
) -> None:
    old = await put(memory, "uses", "Go 1.21")
    with database.connect() as conn:
        conn.execute(
            "UPDATE memory.facts SET value_key = %s WHERE tenant_id = %s",
            (plain_key("Go 1.21"), tenant.tenant_id),
        )
    same = await put(memory, "uses", "go 1.21")
    await put(memory, "uses", "Go 121")
    assert same.fact_id == old.fact_id
    assert await values(memory) == {"Go 1.21", "Go 121"}
    with database.connect() as conn:
        conn.execute(
            "UPDATE memory.facts SET value_key = %s WHERE tenant_id = %s AND value = 'Go 1.21'",
            ("go121-", tenant.tenant_id),
        )
    request = pb.RetractFactRequest(request_id=rid(), user_id="u", fact_id=old.fact_id, purge=True)
    assert (await memory.stub.RetractFact(request)).receipt.removed["facts"] == 1
    assert await values(memory) == {"Go 121"}


async def test_a_tombstone_of_an_earlier_version_holds_until_it_is_said_anew(
    memory: Memory, database: Database, tenant: Tenant
) -> None:
    stone = profile.tombstone_hash(tenant.tenant_id, "u", "fact:uses", "Go 1.21")
    with database.connect() as conn:
        conn.execute(
            "INSERT INTO memory.tombstones (tenant_id, user_hash, kind, content_hash)"
            " VALUES (%s, %s, 'fact', %s)",
            (tenant.tenant_id, profile.user_hash(tenant.tenant_id, "u"), stone),
        )
    long_ago = (await put(memory, "hobby", "chess")).valid_from
    long_ago.FromSeconds(long_ago.seconds - 86_400)
    await memory.say("u", "我们用 Go 1.21", event_time=long_ago)
    await memory.settled()
    assert await values(memory) == {"chess"}
    await put(memory, "uses", "Go 1.21")
    assert await values(memory) == {"chess", "Go 1.21"}
    await memory.say("u", "我们用 Go 1.21", event_time=long_ago)
    await memory.settled()
    (found,) = [f for f in await memory.facts("u") if f.value == "Go 1.21"]
    assert len(found.sources) == 1
