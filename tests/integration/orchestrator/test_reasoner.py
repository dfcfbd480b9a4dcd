"""A4 and its kind: a model that hangs, loops, breaks off, lies about tools or says nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from services.common.deadlines import Deadline
from services.common.llm import Provider
from services.orchestrator.reasoner.loop import (
    Limits,
    Reasoned,
    Reasoner,
    Task,
    ToolResult,
)
from services.orchestrator.reasoner.model import ModelMessage, ToolRequest, ToolSpec
from services.orchestrator.reasoner.openai_model import OpenAiModel
from services.orchestrator.reasoner.spent import Spent
from tests.support import fake_llm as llm
from tests.support.fake_llm import FakeLlm

FINDING = "资料：giscus 基于 GitHub Discussions。"
LONG = "年轮是树木每年形成的同心圆，宽窄反映当年的气候。" * 8


class Tools:
    """One tool that finds something, one that fails."""

    specs: Sequence[ToolSpec] = (
        ToolSpec("search_knowledge", "search", {"type": "object", "properties": {}}),
        ToolSpec("broken", "fails", {"type": "object", "properties": {}}),
    )

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.running = 0
        self.most = 0

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        self.calls.append((name, dict(arguments)))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.02)
        self.running -= 1
        if name == "broken":
            return ToolResult("failed", "failed", ok=False)
        return ToolResult(FINDING, "1 passage")


class Ear:
    """Remembers what was passed on, and when."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.thoughts: list[str] = []
        self.tools: list[tuple[str, str]] = []

    def text(self, piece: str) -> None:
        self.pieces.append(piece)

    def thinking(self, piece: str) -> None:
        self.thoughts.append(piece)

    def tool_started(self, call: ToolRequest) -> None:
        self.tools.append(("started", call.name))

    def tool_finished(self, call: ToolRequest, result: ToolResult, ms: float) -> None:
        self.tools.append(("ok" if result.ok else "failed", call.name))


@pytest.fixture
async def model(fake_llm: FakeLlm) -> AsyncIterator[OpenAiModel]:
    made = OpenAiModel(Provider(fake_llm.base_url, fake_llm.api_key, fake_llm.model))
    yield made
    await made.close()


async def _ask(
    models: Sequence[OpenAiModel],
    tools: Tools,
    ear: Ear,
    *,
    within: float = 10.0,
    limits: Limits | None = None,
    spent: Spent | None = None,
) -> Reasoned:
    task = Task([ModelMessage("system", "S"), ModelMessage("user", "Q")], "根据资料回答：")
    return await Reasoner(models, limits or Limits()).answer(
        task, tools, ear, Deadline.after(within), spent or Spent()
    )


def _after_tools(call: llm.Call) -> bool:
    return any(m["role"] == "tool" for m in call.json["messages"])


def _synthesis(call: llm.Call) -> bool:
    return "根据资料回答" in call.text


async def test_an_answer_streams_piece_by_piece(fake_llm: FakeLlm, model: OpenAiModel) -> None:
    fake_llm.on(None, llm.text("你好，世界。"))
    ear, spent = Ear(), Spent()
    result = await _ask([model], Tools(), ear, spent=spent)
    assert result.text == "你好，世界。" == "".join(ear.pieces)
    assert len(ear.pieces) > 1
    assert spent == Spent(3, 6)
    assert result.recovered == ""


async def test_tools_run_in_parallel_and_their_results_reach_the_model(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    two = llm.Reply(tool_calls=(("search_knowledge", '{"query": "a"}'), ("broken", "{}")))
    fake_llm.on(None, two)
    fake_llm.on(_after_tools, llm.text("完成。"))
    tools, ear = Tools(), Ear()
    result = await _ask([model], tools, ear)
    assert result.text == "完成。"
    assert tools.most == 2
    roles = [m["role"] for m in fake_llm.chats()[1].json["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool"]
    assert ("failed", "broken") in ear.tools


async def test_a4_a_loop_ends_in_a_synthesis(fake_llm: FakeLlm, model: OpenAiModel) -> None:
    fake_llm.on(None, llm.tool_call("search_knowledge", {"query": "x"}))
    fake_llm.on(_synthesis, llm.text("基于资料：giscus。"))
    result = await _ask([model], Tools(), Ear())
    assert result.text == "基于资料：giscus。"
    assert result.recovered == "loop_limit"
    assert result.finish == "recovered"
    assert FINDING in fake_llm.chats()[-1].text
    assert "tools" not in fake_llm.chats()[-1].json


async def test_a4_a_loop_with_new_arguments_each_time_is_bounded(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    replies = [llm.tool_call("search_knowledge", {"query": str(n)}) for n in range(50)]
    fake_llm.on(None, *replies)
    fake_llm.on(_synthesis, llm.text("够了。"))
    tools = Tools()
    result = await _ask([model], tools, Ear(), limits=Limits(rounds=4, tool_calls=3))
    assert result.text == "够了。"
    assert len(tools.calls) <= 3


async def test_a4_a_hang_after_tools_is_answered_from_their_results(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    fake_llm.on(None, llm.tool_call("search_knowledge", {"query": "x"}))
    fake_llm.on(_after_tools, llm.text("太晚", delay_s=30))
    fake_llm.on(_synthesis, llm.text("用已有资料回答。"))
    result = await _ask([model], Tools(), Ear(), within=4.0)
    assert result.text == "用已有资料回答。"
    assert result.recovered == "timeout"


async def test_a4_a_hang_without_tools_keeps_a_long_text(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    fake_llm.on(None, llm.text(LONG + "尾" * 4_000, piece_delay_s=0.02))
    result = await _ask([model], Tools(), Ear(), within=4.0)
    assert result.text is not None
    assert len(result.text) >= 100
    assert result.recovered == "timeout"


@pytest.mark.parametrize(("after", "kept"), [(3, False), (40, True)])
async def test_a4_a_cut_stream_keeps_a_hundred_characters_or_nothing(
    fake_llm: FakeLlm, model: OpenAiModel, after: int, kept: bool
) -> None:
    fake_llm.on(None, llm.cut(LONG, after))
    result = await _ask([model], Tools(), Ear())
    assert (result.text is not None) is kept
    assert result.recovered == "cut"
    assert len(fake_llm.chats()) == 1  # nothing is asked twice once a piece was passed on


async def test_malformed_and_unknown_tool_calls_are_told_to_the_model(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    bad = llm.Reply(tool_calls=(("search_knowledge", '{"query": '), ("no_such_tool", "{}")))
    fake_llm.on(None, bad)
    fake_llm.on(_after_tools, llm.text("好的。"))
    tools = Tools()
    result = await _ask([model], tools, Ear())
    assert result.text == "好的。"
    assert tools.calls == []
    said = [m["content"] for m in fake_llm.chats()[1].json["messages"] if m["role"] == "tool"]
    assert "JSON" in said[0]
    assert "search_knowledge" in said[1]


async def test_an_empty_answer_is_tried_again_and_then_given_up(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    fake_llm.on(None, llm.text(""), llm.text("第二次。"))
    assert (await _ask([model], Tools(), Ear())).text == "第二次。"
    fake_llm.reset()
    fake_llm.on(None, llm.text(""))
    result = await _ask([model], Tools(), Ear())
    assert result.text is None
    assert result.recovered == "malformed"


async def test_busy_providers_are_waited_for_before_the_first_piece_only(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    fake_llm.on(None, llm.rate_limited(0.1), llm.failure(503), llm.text("好。"))
    assert (await _ask([model], Tools(), Ear())).text == "好。"
    assert len(fake_llm.chats()) == 3


async def test_a_second_provider_answers_when_the_first_refuses(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    dead = OpenAiModel(Provider("http://127.0.0.1:9/v1", "k", "dead"))
    fake_llm.on(None, llm.text("备用。"))
    result = await _ask([dead, model], Tools(), Ear(), limits=Limits(retries=0))
    await dead.close()
    assert result.text == "备用。"
    assert result.fallback_model


@pytest.fixture
async def second(fake_llm: FakeLlm) -> AsyncIterator[OpenAiModel]:
    made = OpenAiModel(Provider(fake_llm.base_url, fake_llm.api_key, "second"))
    yield made
    await made.close()


def _models(fake_llm: FakeLlm) -> list[str]:
    return [call.json["model"] for call in fake_llm.chats()]


@pytest.mark.parametrize(
    "failure", [llm.text("太晚", delay_s=30), llm.rate_limited(30), llm.rate_limited(600)]
)
async def test_a_second_provider_is_asked_instead_of_waiting_for_the_first(
    fake_llm: FakeLlm, model: OpenAiModel, second: OpenAiModel, failure: llm.Reply
) -> None:
    fake_llm.on(None, llm.text("备用。"))
    fake_llm.on(lambda call: call.json["model"] == fake_llm.model, failure)
    result = await _ask([model, second], Tools(), Ear(), within=4.0)
    assert (result.text, result.recovered, result.fallback_model) == ("备用。", "", True)
    assert _models(fake_llm) == [fake_llm.model, "second"]


async def test_a_run_stays_with_the_provider_that_answered(
    fake_llm: FakeLlm, model: OpenAiModel, second: OpenAiModel
) -> None:
    fake_llm.on(None, llm.tool_call("search_knowledge", {"query": "x"}))
    fake_llm.on(_after_tools, llm.text("备用。"))
    fake_llm.on(lambda call: call.json["model"] == fake_llm.model, llm.rate_limited(30))
    result = await _ask([model, second], Tools(), Ear())
    assert result.text == "备用。"
    assert _models(fake_llm) == [fake_llm.model, "second", "second"]


async def test_a_wait_that_ends_after_the_deadline_is_not_begun(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    fake_llm.on(None, llm.rate_limited(600))
    result = await _ask([model], Tools(), Ear(), within=30.0)
    assert result.recovered == "rate_limited"
    assert len(fake_llm.chats()) == 1


async def test_a_model_without_tools_is_asked_without_them(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    def offers_tools(call: llm.Call) -> bool:
        return "tools" in call.json

    fake_llm.on(None, llm.text("没有工具也行。"))
    fake_llm.on(offers_tools, llm.failure(400))
    result = await _ask([model], Tools(), Ear())
    assert result.text == "没有工具也行。"
    assert "tools" not in fake_llm.chats()[-1].json


async def test_inline_thinking_is_no_part_of_the_answer(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    fake_llm.on(None, llm.text("<think>先想一想</think>\n\n答案是 42。"))
    ear = Ear()
    result = await _ask([model], Tools(), ear)
    assert result.text == "答案是 42。"
    assert "".join(ear.thoughts) == "先想一想"


def _chunk(delta: dict[str, Any], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({"object": "chat.completion.chunk", "model": "m", "choices": [choice]})


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_separate_thinking_is_no_part_of_the_answer(
    fake_llm: FakeLlm, model: OpenAiModel, field: str
) -> None:
    thought = [_chunk({field: piece}) for piece in ("先想", "一想")]
    fake_llm.on(None, llm.raw_stream(*thought, _chunk({"content": "42。"}), _chunk({}, "stop")))
    ear = Ear()
    result = await _ask([model], Tools(), ear)
    assert result.text == "42。" == "".join(ear.pieces)
    assert ear.thoughts == ["先想", "一想"]


async def test_only_thinking_is_no_answer(fake_llm: FakeLlm, model: OpenAiModel) -> None:
    fake_llm.on(None, llm.raw_stream(_chunk({"reasoning_content": "嗯"}), _chunk({}, "stop")))
    result = await _ask([model], Tools(), Ear(), limits=Limits(retries=0))
    assert result.text is None
    assert result.recovered == "malformed"


@pytest.mark.parametrize(
    "event",
    [
        '"text"',
        "[1]",
        '{"choices": 5}',
        '{"choices": [{}]}',
        '{"choices": [{"delta": {"content": 7}}]}',
        '{"choices": [{"delta": {"tool_calls": [3]}}]}',
        '{"choices": [{"delta": {"content": "x"}',
        '{"error": {"message": "overloaded"}}',
    ],
)
async def test_a_stream_of_something_else_is_a_typed_failure(
    fake_llm: FakeLlm, model: OpenAiModel, event: str
) -> None:
    fake_llm.on(None, llm.raw_stream(event))
    result = await _ask([model], Tools(), Ear(), limits=Limits(retries=0))
    assert result.text is None
    assert result.recovered in ("malformed", "cut")


@pytest.mark.parametrize("numbered", [True, False])
async def test_calls_in_pieces_are_whole_with_and_without_their_index(
    fake_llm: FakeLlm, model: OpenAiModel, numbered: bool
) -> None:
    def piece(index: int, function: dict[str, str], call_id: str | None = None) -> str:
        one: dict[str, Any] = {"function": function}
        one |= {"id": call_id, "type": "function"} if call_id else {}
        one |= {"index": index} if numbered else {}
        return _chunk({"tool_calls": [one]})

    pieces = [
        piece(0, {"name": "search_knowledge", "arguments": '{"que'}, "call_a"),
        piece(0, {"arguments": 'ry": "一"}'}),
        piece(1, {"name": "search_knowledge", "arguments": ""}, "call_b"),
        piece(1, {"arguments": '{"query": '}),
        piece(1, {"arguments": '"二"}'}),
    ]
    fake_llm.on(None, llm.raw_stream(*pieces, _chunk({}, "tool_calls")))
    fake_llm.on(_after_tools, llm.text("完成。"))
    tools = Tools()
    result = await _ask([model], tools, Ear())
    assert result.text == "完成。"
    assert tools.calls == [
        ("search_knowledge", {"query": "一"}),
        ("search_knowledge", {"query": "二"}),
    ]
    asked = fake_llm.chats()[1].json["messages"]
    assert [m["tool_call_id"] for m in asked if m["role"] == "tool"] == ["call_a", "call_b"]


async def test_half_an_emoji_in_two_pieces_is_whole(fake_llm: FakeLlm, model: OpenAiModel) -> None:
    halves = [
        '{"choices":[{"delta":{"content":"好\\ud83d"}}]}',
        '{"choices":[{"delta":{"content":"\\ude00。\\udc00"}}]}',
    ]
    fake_llm.on(None, llm.raw_stream(*halves, _chunk({}, "stop")))
    ear = Ear()
    result = await _ask([model], Tools(), ear)
    assert result.text == "好😀。\ufffd" == "".join(ear.pieces)


async def test_what_a_model_calls_its_limit_is_learnt(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    fake_llm.on(None, llm.text("好。"))
    fake_llm.on(
        lambda call: "max_tokens" in call.json,
        llm.failure(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'."),
    )
    task = Task([ModelMessage("user", "Q")], "", max_output_tokens=50)
    for _ in range(2):
        answer = await Reasoner([model], Limits()).answer(
            task, Tools(), Ear(), Deadline.after(5), Spent()
        )
        assert answer.text == "好。"
    refused, *rest = fake_llm.chats()
    assert refused.json["max_tokens"] == 50
    assert [call.json.get("max_completion_tokens") for call in rest] == [50, 50]


async def test_a_refusal_of_the_messages_is_not_tried_in_other_forms(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    fake_llm.on(None, llm.failure(400, "This model's maximum context length is 8192 tokens."))
    result = await _ask([model], Tools(), Ear())
    assert result.recovered == "refused"
    assert len(fake_llm.chats()) == 1


async def test_g7_a_cancelled_caller_ends_the_providers_work(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    # The whole answer would take minutes.
    fake_llm.on(None, llm.text("很" * 4_000, piece_delay_s=0.1))
    ear = Ear()
    spent = Spent()
    task = asyncio.ensure_future(_ask([model], Tools(), ear, spent=spent))
    while not ear.pieces:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    (call,) = fake_llm.chats()
    assert await asyncio.to_thread(call.ended.wait, 20)
    assert call.disconnected_at is not None
    # "S" and "Q", and what was heard of the answer, by the estimate of one token a wide character.
    assert spent == Spent(2, sum(map(len, ear.pieces)), estimated=True)


async def test_a_call_that_hangs_after_a_counted_one_is_paid_for_as_well(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    fake_llm.on(None, llm.tool_call("search_knowledge", {"query": "x"}))
    fake_llm.on(_after_tools, llm.text("太晚", delay_s=30))
    fake_llm.on(_synthesis, llm.failure(401))
    spent = Spent()
    result = await _ask([model], Tools(), Ear(), within=3.0, spent=spent)
    assert (result.text, result.recovered) == (None, "timeout")
    hung = len("Q") + len("S") + len(FINDING)
    assert spent.estimated
    assert 3 < spent.prompt_tokens <= 3 + hung
    assert spent.completion_tokens == 0


async def test_a_call_that_was_not_begun_costs_nothing(
    fake_llm: FakeLlm, model: OpenAiModel
) -> None:
    for failure in (llm.failure(401), llm.rate_limited(0.0), llm.failure(503)):
        fake_llm.on(None, failure)
        spent = Spent()
        await _ask([model], Tools(), Ear(), limits=Limits(retries=0), spent=spent)
        assert spent == Spent()
