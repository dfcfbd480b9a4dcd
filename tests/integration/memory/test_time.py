"""Contradiction and time, notes and readings: through the contract, extracted by rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from nianlun.memory.v1 import memory_pb2 as pb
from tests.integration.memory.calls import Memory, rid, stamp

NOW = datetime.now(UTC)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


async def test_t01_a_new_employer_closes_the_old_one(memory: Memory) -> None:
    await memory.say("u", "I work at Acme", at=ago(90))
    await memory.say("u", "I now work at Globex")
    await memory.settled()
    assert [f.value for f in await memory.facts("u")] == ["Globex"]
    assert [f.value for f in await memory.facts("u", as_of=stamp(ago(30)))] == ["Acme"]
    first, second = await memory.history("u", "employer")
    assert (first.value, first.state) == ("Acme", pb.FACT_STATE_SUPERSEDED)
    assert first.valid_to == second.valid_from
    rendered = (await memory.load("u", "Where do I work?")).rendered
    assert "Globex" in rendered
    profile = (await memory.load("u", "Where do I work?", as_of=stamp(ago(30)))).profile
    assert [f.value for f in profile] == ["Acme"]


async def test_t02_liking_ends_disliking(memory: Memory) -> None:
    await memory.say("u", "我不喜欢邓紫棋的歌", at=ago(2))
    await memory.say("u", "我喜欢邓紫棋的歌")
    await memory.settled()
    assert [(f.attribute, f.value) for f in await memory.facts("u")] == [("likes", "邓紫棋的歌")]
    history = await memory.history("u", "likes")
    assert [f.attribute for f in history] == ["dislikes", "likes"]


async def test_t03_two_languages_stay(memory: Memory) -> None:
    await memory.say("u", "I speak English", at=ago(1))
    await memory.say("u", "I speak Chinese")
    await memory.settled()
    assert {f.value for f in await memory.facts("u")} == {"English", "Chinese"}


async def test_t04_back_and_forth_is_three_intervals(memory: Memory) -> None:
    for days, city in ((300, "北京"), (200, "上海"), (10, "北京")):
        await memory.say("u", f"我搬到{city}了", at=ago(days))
        await memory.settled()
    history = await memory.history("u", "city")
    assert [f.value for f in history] == ["北京", "上海", "北京"]
    assert [f.HasField("valid_to") for f in history] == [True, True, False]


async def test_t04_older_statements_that_come_late_take_their_place(memory: Memory) -> None:
    await memory.say("u", "我搬到上海了", at=ago(200))
    await memory.settled()
    await memory.say("u", "我住在北京", at=ago(300), session="old")
    await memory.settled()
    assert [f.value for f in await memory.facts("u")] == ["上海"]
    assert [f.value for f in await memory.facts("u", as_of=stamp(ago(250)))] == ["北京"]


async def test_t04_what_was_said_again_later_still_holds(memory: Memory) -> None:
    for days, text in ((300, "我住在北京"), (10, "我住在北京"), (200, "我搬到上海了")):
        await memory.say("u", text, at=ago(days), session=f"s{days}")
        await memory.settled()
    history = await memory.history("u", "city")
    assert [f.value for f in history] == ["北京", "上海", "北京"]
    assert [f.HasField("valid_to") for f in history] == [True, True, False]
    assert [len(f.sources) for f in history] == [1, 1, 1]
    assert [f.value for f in await memory.facts("u")] == ["北京"]


async def test_t05_last_week_of_a_backfilled_turn(memory: Memory) -> None:
    await memory.say("u", "I went to Paris last week", at=datetime(2023, 5, 24, 9, tzinfo=UTC))
    await memory.settled()
    (note,) = await memory.episodes("u")
    assert "2023-05-17" in note.note
    assert note.about_from.ToDatetime(UTC) <= datetime(2023, 5, 17, tzinfo=UTC)
    assert note.about_to.ToDatetime(UTC) > datetime(2023, 5, 17, tzinfo=UTC)


async def test_t06_noon_in_shanghai(memory: Memory) -> None:
    said = datetime(2024, 3, 5, 1, 0, tzinfo=UTC)
    await memory.say("u", "今天中午12:45开会", at=said, time_zone="Asia/Shanghai")
    await memory.settled()
    (note,) = await memory.episodes("u")
    assert note.about_from.ToDatetime(UTC) == datetime(2024, 3, 5, 4, 45, tzinfo=UTC)
    assert "2024-03-05 12:45+08:00" in (await memory.load("u", "开会")).rendered


async def test_d06_a_right_old_note_stays_in_the_top_three(memory: Memory) -> None:
    await memory.say("u", "机房的门禁密钥放在蓝色保险柜第三层。", at=ago(300))
    for number in range(30):
        await memory.say(
            "u", f"今天讨论了第 {number} 版首页设计稿的配色。", session=f"n{number % 5}"
        )
    await memory.settled(60)
    hits = (await memory.recall("u", "机房的门禁密钥放在哪里")).hits
    assert any("蓝色保险柜" in hit.episode.note for hit in hits[:3])
    best = next(h for h in hits if "蓝色保险柜" in h.episode.note)
    assert 0.59 < best.decay < 0.62
    assert abs(best.score - best.relevance * best.decay) < 1e-9


async def test_e05_the_half_life_is_a_setting(memory: Memory) -> None:
    await memory.say("u", "我们决定把缓存换成 Redis。", at=ago(30))
    await memory.settled()
    before = (await memory.recall("u", "缓存用什么")).hits[0].decay
    settings = pb.Settings(half_life_days=3, decay_floor=0.2)
    await memory.stub.UpdateSettings(pb.UpdateSettingsRequest(request_id=rid(), settings=settings))
    after = (await memory.recall("u", "缓存用什么")).hits[0].decay
    assert after < 0.25 < before
    # A floor of zero is a floor: what is old fades away.
    faded = pb.Settings(half_life_days=3, decay_floor=0.0)
    stored = await memory.stub.UpdateSettings(
        pb.UpdateSettingsRequest(request_id=rid(), settings=faded)
    )
    assert stored.settings.HasField("decay_floor")
    assert stored.settings.decay_floor == 0.0
    last = (await memory.recall("u", "缓存用什么")).hits[0].decay
    assert 0.0 < last < 0.01
    plain = await memory.stub.UpdateSettings(
        pb.UpdateSettingsRequest(request_id=rid(), settings=pb.Settings())
    )
    assert plain.settings.decay_floor == 0.6


async def test_e06_nothing_relevant_nothing_injected(memory: Memory) -> None:
    await memory.say("u", "我们决定把缓存换成 Redis。")
    await memory.say("u", "年假制度的规定是每年十天。")
    await memory.end("u")
    await memory.settled()
    for query in ("how do I bake sourdough bread", "茄子应该怎么烧才好吃"):
        found = await memory.load("u", query, layers=pb.Layers(profile=False, summary=False))
        assert not found.episodes, query
        assert found.rendered == ""


async def test_e07_notes_are_dated_and_conditional(memory: Memory) -> None:
    await memory.say("u", "We decided to use Redis for the cache.", at=ago(3))
    await memory.settled()
    found = await memory.load("u", "Which cache did we decide on?")
    (block,) = [b for b in found.blocks if b.layer == pb.LAYER_EPISODES]
    assert "only if relevant to the question" in block.text
    assert f"{ago(3):%Y-%m-%d}" in block.text


async def test_p08_p14_readings_and_feedback(memory: Memory) -> None:
    papers = {
        "d1": ("同态加密的隐私推理", "用 CKKS 同态加密做神经网络的隐私推理"),
        "d2": ("隐私保护的神经网络推理", "SiRNN：安全的循环神经网络推理"),
        "d3": ("中世纪的面包", "中世纪欧洲的烘焙史"),
    }
    for document, (title, summary) in papers.items():
        reply = await memory.stub.RecordReading(
            pb.RecordReadingRequest(
                request_id=rid(),
                user_id="u",
                document_id=document,
                title=title,
                summary=summary,
            )
        )
        assert reply.first_time
    await memory.settled()
    again = await memory.stub.RecordReading(
        pb.RecordReadingRequest(
            request_id=rid(),
            user_id="u",
            document_id="d1",
        )
    )
    assert (again.first_time, again.reading.times) == (False, 2)
    request = pb.FindSimilarReadingsRequest(user_id="u", document_id="d1")
    found = await memory.stub.FindSimilarReadings(request)
    assert found.earlier_readings == 2
    assert found.hits[0].reading.document_id == "d2"
    for _ in range(3):
        await memory.stub.RecordReadingFeedback(
            pb.RecordReadingFeedbackRequest(
                request_id=rid(),
                user_id="u",
                document_id="d2",
                verdict=pb.READING_VERDICT_NOT_USEFUL,
            )
        )
    later = await memory.stub.FindSimilarReadings(request)
    scores = {h.reading.document_id: h.score for h in later.hits}
    assert scores["d2"] < found.hits[0].score
    empty = await memory.stub.FindSimilarReadings(
        pb.FindSimilarReadingsRequest(user_id="nobody", text="anything")
    )
    assert (len(empty.hits), empty.earlier_readings) == (0, 0)


async def test_corrections_are_guarded_and_kept(memory: Memory) -> None:
    await memory.say("u", "我叫林舟")
    await memory.settled()
    (old,) = await memory.facts("u")
    wrong = pb.CorrectFactRequest(
        request_id=rid(), user_id="u", fact_id=old.fact_id, value="林洲", etag="stale"
    )
    import grpc

    await memory.refused("CorrectFact", wrong, grpc.StatusCode.ABORTED)
    right = pb.CorrectFactRequest(
        request_id=rid(), user_id="u", fact_id=old.fact_id, value="林洲", etag=old.etag
    )
    new = (await memory.stub.CorrectFact(right)).fact
    assert (new.value, new.origin, new.source_count) == ("林洲", pb.ORIGIN_CALLER, 0)
    assert [f.value for f in await memory.facts("u")] == ["林洲"]
    states = {f.value: f.state for f in await memory.history("u", "name")}
    assert states == {"林舟": pb.FACT_STATE_CORRECTED, "林洲": pb.FACT_STATE_ACTIVE}
