"""The story that the product exists for, over the public contract, without a language model.

M6, E1-E9, T1, A1: what was said in one session is known in the next one, at once and later.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as m
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from tests.support.canary import wait_for_job
from tests.support.requests import new_id
from tests.support.stack import Client

COMMENTS = (
    (
        "我的博客想加评论功能，Disqus 和 giscus 哪个好？",
        "giscus 基于 GitHub Discussions，没有广告。",
    ),
    ("那就用 giscus，不用 Disqus 了。", "好的，博客评论方案定为 giscus。"),
)
INTRODUCTION = ("我叫林晓雨，是一名前端工程师。以后回答请简短一点。", "好的，林晓雨。")


async def _say(
    client: Client, user: str, session: str, said: tuple[str, str], when: datetime | None = None
) -> m.AppendTurnResponse:
    request = m.AppendTurnRequest(
        request_id=new_id(),
        user_id=user,
        session_id=session,
        messages=[
            m.Message(role=m.ROLE_USER, text=said[0]),
            m.Message(role=m.ROLE_ASSISTANT, text=said[1]),
        ],
        time_zone="Asia/Shanghai",
    )
    if when is not None:
        request.event_time.FromDatetime(when)
    receipt: m.AppendTurnResponse = await client.memory.AppendTurn(request)
    return receipt


async def _end(client: Client, user: str, session: str) -> None:
    request = m.EndSessionRequest(request_id=new_id(), user_id=user, session_id=session)
    job = (await client.memory.EndSession(request)).job
    done = await wait_for_job(client.memory, job.job_id)
    assert done.state == common_pb2.JOB_STATE_SUCCEEDED, done


async def _load(client: Client, user: str, session: str, query: str, **more: Any) -> Any:
    request = m.LoadMemoryRequest(user_id=user, session_id=session, query=query, **more)
    return await client.memory.LoadMemory(request)


async def test_a1_what_was_just_said_is_known_in_a_new_session(client: Client) -> None:
    receipt = await _say(client, "u_001", "s1", INTRODUCTION)
    loaded = await _load(client, "u_001", "s2", "我叫什么名字？", at_least=receipt.position)
    assert [turn.turn_id for turn in loaded.fresh_turns] == [receipt.turn_id] or loaded.profile
    assert "林晓雨" in loaded.rendered


async def test_e8_what_was_that_scheme_called(client: Client) -> None:
    await _say(client, "u_001", "s1", INTRODUCTION)
    for said in COMMENTS:
        await _say(client, "u_001", "s1", said)
    await _end(client, "u_001", "s1")
    loaded = await _load(client, "u_001", "s2", "上次说的那个评论方案叫什么来着？")
    notes = [hit.episode for hit in loaded.episodes]
    assert any("giscus" in note.note for note in notes), loaded
    first = next(note for note in notes if "giscus" in note.note)
    assert first.session_id == "s1"
    assert first.event_time.seconds > 0
    assert "giscus" in loaded.rendered
    values = {(fact.attribute, fact.value) for fact in loaded.profile}
    assert any("林晓雨" in value for _, value in values), values
    assert any("工程师" in value for _, value in values), values
    follow = [block.text for block in loaded.blocks if block.trust == m.TRUST_FOLLOW]
    assert any("简短" in text or "简洁" in text for text in follow), loaded.blocks


async def test_e8_the_answer_names_it(client: Client) -> None:
    await _say(client, "u_001", "s1", INTRODUCTION)
    for said in COMMENTS:
        await _say(client, "u_001", "s1", said)
    await _end(client, "u_001", "s1")
    for question, expected in (
        ("上次说的那个评论方案叫什么来着？", "giscus"),
        ("我叫什么名字？", "林晓雨"),
    ):
        answer = await client.orchestrator.Chat(
            o.ChatRequest(
                request_id=new_id(),
                input=o.ChatInput(user_id="u_001", session_id="s2", message=question),
            )
        )
        assert expected in answer.answer.text, answer
        assert any(expected in used.text for used in answer.answer.memories), answer
        kinds = {degradation.kind for degradation in answer.degradations}
        assert common_pb2.DEGRADATION_KIND_NO_LLM in kinds


async def test_e4_e6_another_user_and_another_subject_get_nothing(client: Client) -> None:
    for said in COMMENTS:
        await _say(client, "u_001", "s1", said)
    await _end(client, "u_001", "s1")
    stranger = await _load(client, "u_002", "s2", "上次说的那个评论方案叫什么来着？")
    assert not stranger.episodes
    assert not stranger.fresh_turns
    assert stranger.rendered == ""
    unrelated = await _load(client, "u_001", "s2", "aubergine recipes for a rainy day")
    assert not [hit for hit in unrelated.episodes if hit.score > 0.6], unrelated.episodes


async def test_e9_running_the_same_input_again_adds_nothing(client: Client) -> None:
    for said in COMMENTS:
        await _say(client, "u_001", "s1", said)
    await _end(client, "u_001", "s1")
    before = await client.memory.ListEpisodes(m.ListEpisodesRequest(user_id="u_001"))
    await _end(client, "u_001", "s1")
    after = await client.memory.ListEpisodes(m.ListEpisodesRequest(user_id="u_001"))
    assert [e.episode_id for e in after.episodes] == [e.episode_id for e in before.episodes]
    assert before.episodes


async def test_t1_where_do_i_work_now_and_then(client: Client) -> None:
    now = datetime.now(UTC)
    user = f"t1-{secrets.token_hex(2)}"
    await _say(client, user, "s1", ("我在阿里巴巴工作。", "好的。"), now - timedelta(days=90))
    await _end(client, user, "s1")
    await _say(client, user, "s2", ("我现在在字节跳动工作。", "恭喜。"), now - timedelta(minutes=1))
    await _end(client, user, "s2")
    current = await client.memory.ListFacts(m.ListFactsRequest(user_id=user))
    employers = {f.attribute: f for f in current.facts if "字节跳动" in f.value}
    assert employers, current
    attribute = next(iter(employers))
    assert not any("阿里巴巴" in fact.value for fact in current.facts)
    history = await client.memory.GetFactHistory(
        m.GetFactHistoryRequest(user_id=user, attribute=attribute)
    )
    old, new = history.facts
    assert "阿里巴巴" in old.value
    assert "字节跳动" in new.value
    assert old.valid_to == new.valid_from
    assert old.state == m.FACT_STATE_SUPERSEDED
    then = Timestamp()
    then.FromDatetime(now - timedelta(days=30))
    before = await client.memory.ListFacts(m.ListFactsRequest(user_id=user, as_of=then))
    assert [fact.value for fact in before.facts if fact.attribute == attribute] == [old.value]
    loaded = await _load(client, user, "s3", "我在哪里工作？")
    assert "字节跳动" in loaded.rendered


async def test_m6_the_same_session_goes_on_tomorrow(client: Client) -> None:
    """History belongs to the session, memory to the user."""
    first = o.ChatInput(user_id="m6", session_id="s1", message="我养了一只叫年糕的猫。")
    await client.orchestrator.Chat(o.ChatRequest(request_id=new_id(), input=first))
    again = o.ChatInput(user_id="m6", session_id="s1", message="它叫什么？")
    context = await client.orchestrator.BuildContext(o.BuildContextRequest(input=again))
    history = [message for message in context.prompt if message.role in {"user", "assistant"}]
    assert [message.role for message in history] == ["user", "assistant", "user"], context.prompt
    assert "年糕" in history[0].text
    elsewhere = o.ChatInput(user_id="m6", session_id="s2", message="我的猫叫什么？")
    context = await client.orchestrator.BuildContext(o.BuildContextRequest(input=elsewhere))
    roles = [message.role for message in context.prompt]
    assert roles.count("user") == 1, context.prompt
    assert "assistant" not in roles
    assert "年糕" in context.prompt[0].text
