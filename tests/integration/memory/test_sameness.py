"""What counts as the same value or the same note, in the database and after an upgrade."""

from __future__ import annotations

import json

import pytest

from nianlun.memory.v1 import memory_pb2 as pb
from services.memory import profile
from services.memory.keys import note_key, plain_key, value_key
from tests.integration.memory.calls import Memory, exported, imported, rid
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


def stored_as(database: Database, tenant: Tenant, fact_id: str, key: str) -> None:
    """Give a record the key that an earlier version had for its value."""
    with database.connect() as conn:
        conn.execute(
            "UPDATE memory.facts SET value_key = %s WHERE tenant_id = %s AND fact_id = %s",
            (key, tenant.tenant_id, fact_id),
        )


async def told_twice(memory: Memory, database: Database, tenant: Tenant) -> list[pb.Fact]:
    """Two active records of one value, as versions that run side by side store them; the second
    rests on a turn."""
    old, other = await put(memory, "uses", "Python 3.12"), await put(memory, "uses", "Go")
    await memory.say("u", "我在用 Go")
    await memory.settled()
    stored_as(database, tenant, old.fact_id, "python312")
    with database.connect() as conn:
        conn.execute(
            "UPDATE memory.facts SET value = 'python 3.12', value_key = %s, origin = 'rules'"
            " WHERE tenant_id = %s AND fact_id = %s",
            (value_key("Python 3.12"), tenant.tenant_id, other.fact_id),
        )
    facts = await memory.facts("u")
    assert sorted(fact.value for fact in facts) == ["Python 3.12", "python 3.12"]
    return [old, other]


async def test_two_active_records_of_one_value_become_one(
    memory: Memory, database: Database, tenant: Tenant
) -> None:
    old, _ = await told_twice(memory, database, tenant)
    # Said anew, and anything else of the attribute: neither fails.
    await memory.say("u", "我们用 Rust")
    await memory.settled()
    assert await values(memory) == {"Python 3.12", "Rust"}
    (kept,) = [fact for fact in await memory.facts("u") if fact.value == "Python 3.12"]
    assert (kept.fact_id, kept.origin, len(kept.sources)) == (old.fact_id, pb.ORIGIN_CALLER, 1)
    assert kept.valid_from.ToDatetime() <= old.valid_from.ToDatetime()


@pytest.mark.parametrize("which", [0, 1])
async def test_what_is_done_to_one_of_them_is_done_to_both(
    memory: Memory, database: Database, tenant: Tenant, which: int
) -> None:
    fact = (await told_twice(memory, database, tenant))[which]
    request = pb.CorrectFactRequest(
        request_id=rid(), user_id="u", fact_id=fact.fact_id, value="Python 3.13"
    )
    corrected = (await memory.stub.CorrectFact(request)).fact
    assert await values(memory) == {"Python 3.13"}
    stored_as(database, tenant, corrected.fact_id, "python313")
    retract = pb.RetractFactRequest(request_id=rid(), user_id="u", fact_id=corrected.fact_id)
    await memory.stub.RetractFact(retract)
    assert await values(memory) == set()


async def test_a_key_of_one_value_that_was_the_key_of_another(
    memory: Memory, database: Database, tenant: Tenant
) -> None:
    first, second = await put(memory, "uses", "Go 1.21"), await put(memory, "uses", "Go 12.1")
    stored_as(database, tenant, first.fact_id, "-")
    stored_as(database, tenant, second.fact_id, value_key("Go 1.21"))
    stored_as(database, tenant, first.fact_id, value_key("Go 12.1"))
    again = await put(memory, "uses", "go 12.1")
    assert again.fact_id == second.fact_id
    assert await values(memory) == {"Go 1.21", "Go 12.1"}


async def test_an_import_meets_what_an_earlier_version_stored(
    memory: Memory, database: Database, tenant: Tenant
) -> None:
    await memory.say("a", "我们用 Python 3.12")
    await memory.settled()
    lines = await exported(memory, "a")
    old = await put(memory, "uses", "Python 3.12")
    stored_as(database, tenant, old.fact_id, "python312")
    await imported(memory, "u", lines)
    await put(memory, "uses", "Rust")
    assert await values(memory) == {"Python 3.12", "Rust"}


async def earlier(memory: Memory, database: Database, tenant: Tenant) -> dict[str, pb.Fact]:
    """What an earlier version made of traditional names: attributes of their own, with many values,
    beside the registered ones."""
    facts = {
        "likes": await put(memory, "likes", "綠茶"),
        "喜歡": await put(memory, "hobby", "綠茶"),
        "occupation": await put(memory, "occupation", "律師"),
        "職業": await put(memory, "skill", "醫生"),
    }
    with database.connect() as conn:
        for name in ("喜歡", "職業"):
            conn.execute(
                "UPDATE memory.facts SET attribute = %s, kind = 'preference' WHERE tenant_id = %s"
                " AND fact_id = %s",
                (name, tenant.tenant_id, facts[name].fact_id),
            )
    return facts


async def test_attributes_of_traditional_names_are_found_by_them(
    memory: Memory, database: Database, tenant: Tenant
) -> None:
    facts = await earlier(memory, database, tenant)
    for name, other in (("喜歡", "likes"), ("職業", "occupation")):
        for asked in (name, other):
            ids = {fact.fact_id for fact in await memory.facts("u", attribute=asked)}
            assert ids == {facts[name].fact_id, facts[other].fact_id}
            history = await memory.history("u", asked)
            assert {fact.fact_id for fact in history} == ids
            assert {fact.attribute for fact in history} == {other}


async def test_attributes_of_traditional_names_join_the_registered_ones(
    memory: Memory, database: Database, tenant: Tenant
) -> None:
    facts = await earlier(memory, database, tenant)
    await put(memory, "喜歡", "咖啡")
    likes = {fact.value: fact for fact in await memory.facts("u", attribute="likes")}
    assert set(likes) == {"綠茶", "咖啡"}
    assert likes["綠茶"].fact_id == facts["likes"].fact_id
    now = await put(memory, "職業", "廚師")
    history = await memory.history("u", "occupation")
    assert [(f.value, f.state, f.kind, f.cardinality) for f in history] == [
        (value, state, pb.FACT_KIND_FACT, pb.CARDINALITY_ONE)
        for value, state in (
            ("律師", pb.FACT_STATE_SUPERSEDED), ("醫生", pb.FACT_STATE_SUPERSEDED),
            ("廚師", pb.FACT_STATE_ACTIVE),
        )
    ]  # fmt: skip
    assert history[0].valid_to == history[1].valid_from
    assert history[1].valid_to == now.valid_from
    stored = [json.loads(line) for line in await exported(memory, "u")]
    assert {one.get("attribute") for one in stored} == {None, "likes", "occupation"}


async def test_a_tombstone_under_a_traditional_name_holds(
    memory: Memory, database: Database, tenant: Tenant
) -> None:
    stone = profile.value_tombstones(tenant.tenant_id, "u", "fact:喜歡", "咖啡")[0]
    with database.connect() as conn:
        conn.execute(
            "INSERT INTO memory.tombstones (tenant_id, user_hash, kind, content_hash, kill_time)"
            " VALUES (%s, %s, 'fact', %s, now() + interval '1 hour')",
            (tenant.tenant_id, profile.user_hash(tenant.tenant_id, "u"), stone),
        )
    await memory.say("u", "我喜歡咖啡")
    await memory.settled()
    assert await values(memory) == set()
    await put(memory, "likes", "咖啡")
    assert await values(memory) == {"咖啡"}


async def test_a_note_that_was_deleted_stays_so_in_other_words_of_the_same(memory: Memory) -> None:
    first = await memory.say("u", "我们决定把缓存换成 Redis。", session="s1")
    await memory.settled()
    (note,) = await memory.episodes("u")
    await memory.stub.DeleteEpisode(
        pb.DeleteEpisodeRequest(request_id=rid(), user_id="u", episode_id=note.episode_id)
    )
    for number, said in enumerate(("我們決定把緩存換成 Redis 吧。", "我们决定把缓存换成 Redis")):
        again = {"session": f"t{number}", "event_time": first.event_time}
        await memory.say("u", said, **again)
    await memory.settled()
    assert await memory.episodes("u") == []


@pytest.mark.parametrize("stone", [0, 1])
async def test_a_tombstone_of_a_note_that_an_earlier_version_left_holds(
    memory: Memory, database: Database, tenant: Tenant, stone: int
) -> None:
    said = "我们决定把缓存换成 Redis。"
    await memory.say("u", said)
    await memory.settled()
    (note,) = await memory.episodes("u")
    hashes = profile.value_tombstones(tenant.tenant_id, "v", "note", note.note)
    with database.connect() as conn:
        conn.execute(
            "INSERT INTO memory.tombstones (tenant_id, user_hash, kind, content_hash, kill_time)"
            " VALUES (%s, %s, 'episode', %s, now() + interval '1 hour')",
            (tenant.tenant_id, profile.user_hash(tenant.tenant_id, "v"), hashes[stone]),
        )
    await memory.say("v", said)
    await memory.settled()
    assert await memory.episodes("v") == []


async def old_notes(memory: Memory, database: Database, tenant: Tenant) -> list[str]:
    """Two notes of one content as earlier versions stored them, under the keys of their letters;
    returns their ids, the older first."""
    ids = []
    for number, said in enumerate(("我们决定把缓存换成 Redis。", "我们决定用 Go 写后端。")):
        await memory.say("u", said, session=f"s{number}")
        await memory.settled()
        (note,) = [one for one in await memory.episodes("u") if one.episode_id not in ids]
        ids.append(note.episode_id)
    same = note.note.partition("：")[0] + "：我們決定把緩存換成 Redis 吧。"
    with database.connect() as conn:
        conn.execute(
            "UPDATE memory.episodes SET note = %s WHERE tenant_id = %s AND episode_id = %s",
            (same, tenant.tenant_id, ids[1]),
        )
        for row in conn.execute(
            "SELECT episode_id, note FROM memory.episodes WHERE tenant_id = %s",
            (tenant.tenant_id,),
        ).fetchall():
            conn.execute(
                "UPDATE memory.episodes SET note_key = %s WHERE tenant_id = %s AND episode_id = %s",
                (plain_key(row["note"]), tenant.tenant_id, row["episode_id"]),
            )
    return ids


async def test_notes_of_an_earlier_version_are_given_their_key_and_become_one(
    memory: Memory, database: Database, tenant: Tenant
) -> None:
    ids = await old_notes(memory, database, tenant)
    await memory.say("u", "我们决定把缓存换成 Redis", session="s2")
    await memory.settled()
    (note,) = await memory.episodes("u")
    assert note.episode_id == ids[0]
    assert sorted(source.session_id for source in note.sources) == ["s0", "s1", "s2"]
    assert [hit.episode.episode_id for hit in (await memory.recall("u", "缓存换成")).hits] == ids[
        :1
    ]
    stored = [json.loads(line) for line in await exported(memory, "u")]
    assert [one["note_key"] for one in stored if one["type"] == "episodes"] == [note_key(note.note)]


@pytest.mark.parametrize("which", [0, 1])
async def test_a_note_that_is_deleted_is_in_no_copy_of_an_earlier_version(
    memory: Memory, database: Database, tenant: Tenant, which: int
) -> None:
    ids = await old_notes(memory, database, tenant)
    await memory.stub.DeleteEpisode(
        pb.DeleteEpisodeRequest(request_id=rid(), user_id="u", episode_id=ids[which])
    )
    assert await memory.episodes("u") == []
    stored = [json.loads(line)["type"] for line in await exported(memory, "u")]
    assert "episode_sources" not in stored
