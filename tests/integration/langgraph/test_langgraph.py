"""M9: memory around a real LangGraph graph and its ReAct agent, two lines each."""

from __future__ import annotations

from typing import Any

import pytest

from nianlun.aio import AsyncClient
from nianlun.memory.v1 import memory_pb2 as m
from tests.support import fake_llm as llm
from tests.support.fake_llm import FakeLlm
from tests.support.stack import Client, Stack

pytest.importorskip("langgraph")
openai = pytest.importorskip("langchain_openai")

from langchain_core.messages import AIMessage, HumanMessage  # noqa: E402
from langgraph.graph import END, START, StateGraph  # noqa: E402
from langgraph.prebuilt import create_react_agent  # noqa: E402

from nianlun.langgraph import MemoryNodes, MemoryState, system_prompt  # noqa: E402


class _State(MemoryState):
    """What the prebuilt agent needs beside the messages."""

    remaining_steps: int


def _graph(nodes: MemoryNodes, fake: FakeLlm) -> Any:
    model = openai.ChatOpenAI(
        model=fake.model, base_url=fake.base_url, api_key=fake.api_key, max_retries=0
    )

    def weather(city: str) -> str:
        """The weather of a city."""
        return f"{city}：晴"

    agent = create_react_agent(
        model, [weather], prompt=system_prompt("你是助手。"), state_schema=_State
    )
    graph = StateGraph(_State)
    graph.add_node("load_memory", nodes.load_memory)
    graph.add_node("agent", agent)
    graph.add_node("save_memory", nodes.save_memory)
    graph.add_edge(START, "load_memory")
    graph.add_edge("load_memory", "agent")
    graph.add_edge("agent", "save_memory")
    graph.add_edge("save_memory", END)
    return graph.compile()


async def test_m9_a_react_agent_remembers_over_sessions(
    stack: Stack, client: Client, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.tool_call("weather", {"city": "成都"}), llm.text("成都今天晴。"))
    targets = {name: stack.target(name) for name in ("embedder", "retriever", "memory")}
    targets["orchestrator"] = stack.target("orchestrator")
    async with AsyncClient(targets, key=client.tenant.key) as nianlun:
        graph = _graph(MemoryNodes(nianlun), fake_llm)
        first = {"configurable": {"user_id": "lg", "thread_id": "s1"}}
        await graph.ainvoke({"messages": [HumanMessage("我叫林晓雨，成都天气怎样？")]}, first)
        fake_llm.reset()
        fake_llm.on(None, llm.text("你叫林晓雨。"))
        second = {"configurable": {"user_id": "lg", "thread_id": "s2"}}
        result = await graph.ainvoke({"messages": [HumanMessage("我叫什么？")]}, second)
        assert result["messages"][-1].content == "你叫林晓雨。"
        sent = fake_llm.chats()[0]
        assert "林晓雨" in sent.of_role("system")
        assert "林晓雨" not in sent.of_role("user")
        turns = await client.memory.ListTurns(m.ListTurnsRequest(user_id="lg"))
        assert len(turns.turns) == 2
        await MemoryNodes(nianlun).save_memory(result, second)
        again = await client.memory.ListTurns(m.ListTurnsRequest(user_id="lg"))
        assert len(again.turns) == 2
        nobody = await MemoryNodes(nianlun).load_memory(result, {"configurable": {}})
        assert nobody == {"nianlun_memory": ""}


async def test_users_whose_threads_and_words_are_alike_each_keep_their_turn(
    stack: Stack, client: Client
) -> None:
    state = {"messages": [HumanMessage("你好"), AIMessage("你好！")]}
    targets = dict.fromkeys(("embedder", "retriever", "orchestrator", "memory"), "127.0.0.1:9")
    targets["memory"] = stack.target("memory")
    async with AsyncClient(targets, key=client.tenant.key) as nianlun:
        nodes = MemoryNodes(nianlun)
        for user in ("lg-a", "lg-b", "lg-a"):
            await nodes.save_memory(state, {"configurable": {"user_id": user, "thread_id": "1"}})
    for user in ("lg-a", "lg-b"):
        turns = (await client.memory.ListTurns(m.ListTurnsRequest(user_id=user))).turns
        assert [turn.messages[0].text for turn in turns] == ["你好"]


async def test_a_question_is_never_saved_with_the_answer_to_another(
    stack: Stack, client: Client
) -> None:
    first = [HumanMessage("第一问"), AIMessage("第一答")]
    skipped = [*first, HumanMessage("第二问")]
    answered = [*skipped, AIMessage("第三问之前"), HumanMessage("第三问"), AIMessage("第三答")]
    targets = dict.fromkeys(("embedder", "retriever", "orchestrator", "memory"), "127.0.0.1:9")
    targets["memory"] = stack.target("memory")
    config = {"configurable": {"user_id": "lg-skip", "thread_id": "1"}}
    async with AsyncClient(targets, key=client.tenant.key) as nianlun:
        for messages in (first, skipped, answered):
            await MemoryNodes(nianlun).save_memory({"messages": messages}, config)
    turns = (await client.memory.ListTurns(m.ListTurnsRequest(user_id="lg-skip"))).turns
    said = {tuple(message.text for message in turn.messages) for turn in turns}
    assert said == {("第一问", "第一答"), ("第二问",), ("第三问", "第三答")}


async def test_a_graph_goes_on_when_memory_is_away(
    fake_llm: FakeLlm, caplog: pytest.LogCaptureFixture
) -> None:
    fake_llm.on(None, llm.text("你好！"))
    nobody = dict.fromkeys(("embedder", "retriever", "memory", "orchestrator"), "127.0.0.1:9")
    async with AsyncClient(nobody, key="nl_" + "x" * 43, timeout_s=1.0) as nianlun:
        config = {"configurable": {"user_id": "lg", "thread_id": "s1"}}
        graph = _graph(MemoryNodes(nianlun), fake_llm)
        result = await graph.ainvoke({"messages": [HumanMessage("canary 你好")]}, config)
    assert result["messages"][-1].content == "你好！"
    told = [one.getMessage() for one in caplog.records if one.name == "nianlun.langgraph"]
    assert [line.split(":")[0] for line in told] == [
        "memory was not loaded",
        "the turn was not saved",
    ]
    assert "canary" not in "".join(told)
