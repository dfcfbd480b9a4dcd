"""The memory service end to end, without a language model: the story of two sessions."""

from __future__ import annotations

import grpc

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as pb
from tests.integration.memory.calls import Memory, rid, turn

QUESTION = "上次说的那个评论方案叫什么来着？"


async def story(memory: Memory, user: str) -> None:
    """Session 1: name, trade, preference, and a talk that settles on giscus."""
    for texts in (
        ("我叫林舟，是一名前端工程师。以后回答请简短一点。", "好的，林舟。"),
        ("我想给博客加评论功能，Disqus 和 giscus 哪个好？", "giscus 没有广告，更轻。"),
        ("那就用 giscus 吧，不用 Disqus 了。", "好，博客评论就定 giscus。"),
    ):
        await memory.say(user, *texts, time_zone="Asia/Shanghai")


async def test_a1_known_in_the_next_turn_before_extraction(memory: Memory) -> None:
    await story(memory, "u1")
    found = await memory.load("u1", QUESTION)
    assert "giscus" in found.rendered
    assert "林舟" in found.rendered


async def test_e8_the_scheme_of_last_time_is_found_in_a_new_session(memory: Memory) -> None:
    await story(memory, "u1")
    job = await memory.end("u1")
    assert job.state == common_pb2.JOB_STATE_SUCCEEDED, job
    await memory.settled()
    found = await memory.load("u1", QUESTION)
    assert not found.fresh_turns
    assert any("giscus" in hit.episode.note for hit in found.episodes)
    facts = {f.attribute: f for f in found.profile}
    assert facts["name"].value == "林舟"
    assert facts["answer_length"].kind == pb.FACT_KIND_PREFERENCE
    assert found.blocks[0].trust == pb.TRUST_FOLLOW
    assert "giscus" in found.user_summary.text


async def test_m06_history_of_the_session_does_not_come_twice(memory: Memory) -> None:
    await story(memory, "u1")
    found = await memory.load("u1", QUESTION, session="s1", exclude_session=True)
    assert not found.fresh_turns
    request = pb.LoadMemoryRequest(user_id="u1", exclude_session=True)
    await memory.refused("LoadMemory", request, grpc.StatusCode.INVALID_ARGUMENT)


async def test_the_same_state_renders_the_same_text(memory: Memory) -> None:
    await story(memory, "u1")
    await memory.end("u1")
    await memory.settled()
    first = await memory.load("u1", QUESTION)
    assert first.rendered
    assert (await memory.load("u1", QUESTION)).rendered == first.rendered
    assert sum(block.tokens for block in first.blocks) == first.tokens <= 1_500


async def test_at_least_waits_for_what_was_acknowledged(memory: Memory) -> None:
    receipt = await memory.say("u1", "我喜欢喝茶")
    found = await memory.load("u1", "茶", at_least=receipt.position)
    assert "喝茶" in found.rendered
    assert found.position == receipt.position
    other = pb.LoadMemoryRequest(user_id="u2", at_least=receipt.position)
    await memory.refused("LoadMemory", other, grpc.StatusCode.INVALID_ARGUMENT)
    ahead = receipt.position.replace("p1.", "p1.fffffff")
    late = pb.LoadMemoryRequest(user_id="u1", at_least=ahead)
    await memory.refused("LoadMemory", late, grpc.StatusCode.FAILED_PRECONDITION)


async def test_what_does_not_fit_the_budget_is_reported(memory: Memory) -> None:
    for number in range(12):
        await memory.say("u1", f"第 {number} 件事：" + "今天的天气真不错，我们去公园散步。" * 8)
    found = await memory.load("u1", "公园", budget_tokens=300)
    assert found.tokens <= 300
    # Some may be digested by now: fresh or digested, what is left out is said.
    left = [o for o in found.omissions if o.reason == pb.OMISSION_REASON_BUDGET]
    assert sum(o.count for o in left) > 0


async def test_bad_input_names_the_field_and_stores_nothing(memory: Memory) -> None:
    cases = {
        "user_id": turn("", "s", "x"),
        "session_id": turn("u", "", "x"),
        "time_zone": turn("u", "s", "x", time_zone="Mars/Phobos"),
        "messages": pb.AppendTurnRequest(request_id=rid(), user_id="u", session_id="s"),
        "request_id": turn("u", "s", "x", request_id=""),
    }
    future = turn("u", "s", "x")
    future.event_time.FromJsonString("2999-01-01T00:00:00Z")
    cases["event_time"] = future
    cases["messages[0].text"] = turn("u", "s", "长" * 32_001)
    for field, request in cases.items():
        error = await memory.refused("AppendTurn", request, grpc.StatusCode.INVALID_ARGUMENT)
        assert field in (error.details() or ""), field
    assert not (await memory.stub.ListTurns(pb.ListTurnsRequest(user_id="u"))).turns


async def test_e09_running_the_same_input_again_adds_nothing(memory: Memory) -> None:
    request = turn("u3", "s1", "我喜欢喝咖啡")
    first = await memory.stub.AppendTurn(request)
    assert first == await memory.stub.AppendTurn(request)
    await memory.settled()
    assert len((await memory.stub.ListTurns(pb.ListTurnsRequest(user_id="u3"))).turns) == 1
    assert [f.value for f in await memory.facts("u3")] == ["喝咖啡"]


async def test_m05_a_summary_every_ten_turns_covers_exactly_those(memory: Memory) -> None:
    for number in range(10):
        await memory.say("u1", f"项目编号 {number} 决定用 Rust 编写第 {number} 个模块。")
    await memory.settled()
    request = pb.GetSummaryRequest(user_id="u1", session_id="s1")
    summary = (await memory.stub.GetSummary(request)).summary
    assert summary.covered_turns == 10
    assert summary.covered_until_sequence == 10
    missing = pb.GetSummaryRequest(user_id="u1", session_id="nope")
    await memory.refused("GetSummary", missing, grpc.StatusCode.NOT_FOUND)
