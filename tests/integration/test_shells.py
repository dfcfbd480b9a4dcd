"""M1: the reasoner is untouched by its two shells; without them it runs, and says the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from nianlun.memory.v1 import memory_pb2 as m
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from services.common.deadlines import Deadline
from services.common.llm import Provider
from services.orchestrator.reasoner.loop import Limits, Reasoner, Task, ToolResult
from services.orchestrator.reasoner.model import ModelMessage, ToolRequest, ToolSpec
from services.orchestrator.reasoner.openai_model import OpenAiModel
from services.orchestrator.reasoner.spent import Spent
from tests.support import fake_llm as llm
from tests.support.fake_llm import FakeLlm
from tests.support.requests import new_id
from tests.support.stack import Client, Stack

QUESTION = "用一句话解释什么是年轮。"
SECRET = "我叫林晓雨，我最喜欢银杏。"


class NoTools:
    """A reasoner without shells has nothing to call."""

    specs: Sequence[ToolSpec] = ()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        raise AssertionError("no tool is on offer")


class Silence:
    """Nobody listens."""

    def text(self, piece: str) -> None: ...
    def thinking(self, piece: str) -> None: ...
    def tool_started(self, call: ToolRequest) -> None: ...
    def tool_finished(self, call: ToolRequest, result: ToolResult, ms: float) -> None: ...


def _input(user: str, *, memory: bool) -> o.ChatInput:
    asked = o.ChatInput(
        user_id=user,
        message=QUESTION,
        use_memory=memory,
        use_retrieval=False,
        use_tools=False,
        keep_prompt=True,
    )
    asked.event_time.FromDatetime(datetime(2026, 5, 4, 8, 0, tzinfo=UTC))
    return asked


async def _remember(client: Client, user: str) -> None:
    message = m.Message(role=m.ROLE_USER, text=SECRET)
    request = m.AppendTurnRequest(
        request_id=new_id(), user_id=user, session_id="s0", messages=[message]
    )
    await client.memory.AppendTurn(request)


async def _chat(client: Client, asked: o.ChatInput) -> o.ChatResponse:
    request = o.ChatRequest(input=asked, request_id=new_id())
    response: o.ChatResponse = await client.orchestrator.Chat(request)
    return response


async def test_m1_the_reasoner_alone_says_the_same_bytes(
    thinking_stack: Stack, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("年轮是树木每年生长留下的一圈。"))
    client = thinking_stack.client()
    await _remember(client, "m1")
    asked = _input("m1", memory=False)
    answered = await _chat(client, asked)
    assert answered.answer.text == "年轮是树木每年生长留下的一圈。"

    request = o.BuildContextRequest(input=asked)
    prompt = (await client.orchestrator.BuildContext(request)).prompt
    model = OpenAiModel(Provider(fake_llm.base_url, fake_llm.api_key, fake_llm.model))
    try:
        task = Task(
            messages=[ModelMessage(message.role, message.text) for message in prompt],
            synthesis_request="",
        )
        alone = await Reasoner([model], Limits()).answer(
            task, NoTools(), Silence(), Deadline.after(10), Spent()
        )
    finally:
        await model.close()
    assert alone.text == answered.answer.text
    shells, reasoner = fake_llm.chats()
    assert shells.raw == reasoner.raw


async def test_m1_memory_off_leaves_no_trace_of_memory(
    thinking_stack: Stack, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("好。"))
    client = thinking_stack.client()
    await _remember(client, "m1-known")
    for user in ("m1-known", "m1-unknown"):
        response = await _chat(client, _input(user, memory=False))
        assert not response.answer.memories
    known, unknown = fake_llm.chats()
    assert known.raw == unknown.raw
    turns = await client.memory.ListTurns(m.ListTurnsRequest(user_id="m1-known"))
    assert len(turns.turns) == 1  # and nothing was saved


async def test_m2_memory_goes_into_the_system_prompt_and_never_into_the_history(
    thinking_stack: Stack, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("好。"))
    client = thinking_stack.client()
    await _remember(client, "m2")
    for _ in range(2):
        asked = _input("m2", memory=True)
        asked.session_id = "s1"
        await _chat(client, asked)
    for call in fake_llm.chats():
        assert "林晓雨" in call.of_role("system")
        assert "林晓雨" not in call.of_role("user") + call.of_role("assistant")
    second = fake_llm.chats()[1].json["messages"]
    assert [message["role"] for message in second][-3:] == ["user", "assistant", "user"]


async def test_m8_the_tokens_that_memory_adds_are_counted(
    thinking_stack: Stack, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("好。"))
    client = thinking_stack.client()
    await _remember(client, "m8")
    on = await _chat(client, _input("m8", memory=True))
    off = await _chat(client, _input("m8", memory=False))
    assert on.prompt_tokens.memory > 0
    assert off.prompt_tokens.memory == 0
    assert on.prompt_tokens.total > off.prompt_tokens.total
    assert on.usage.memory_tokens == on.prompt_tokens.memory


async def test_a_cut_stream_and_a_busy_model_still_give_an_answer(
    thinking_stack: Stack, fake_llm: FakeLlm
) -> None:
    client = thinking_stack.client()
    fake_llm.on(None, llm.rate_limited(0.05), llm.text("第二次成功。"))
    response = await _chat(client, _input("busy", memory=False))
    assert response.answer.text == "第二次成功。"
    assert len(fake_llm.chats()) == 2
    long = "银杏是现存最古老的树种之一。" * 20
    fake_llm.reset()
    fake_llm.on(None, llm.cut(long, after=60))
    response = await _chat(client, _input("cut", memory=False))
    assert response.answer.text
    assert response.degradations
