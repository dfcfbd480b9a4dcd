"""I7 on the way to the model: what a user types is redacted before a model, a search or a log."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from nianlun.memory.v1 import memory_pb2 as m
from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from services.orchestrator.requests import Defaults, turn_input
from tests.support import fake_llm as llm
from tests.support.fake_llm import FakeLlm
from tests.support.logs import logging_to
from tests.support.requests import new_id
from tests.support.stack import Stack

NUMBERS = {
    "11010519491231002X": "cn_id",
    "13812345678": "cn_mobile",
    "4111 1111 1111 1111": "bank_card",
    "91350100M000100Y43": "cn_uscc",
    "sk-proj-abcdefghijklmnopqrstuvwx": "api_key",
}


@pytest.fixture
def everything_logged() -> Iterator[io.StringIO]:
    """What is logged when an operator who looks for a fault has everything logged."""
    written = io.StringIO()
    with logging_to(written, "orchestrator"):
        yield written


async def test_i07_personal_data_reaches_neither_model_nor_memory_nor_log(
    thinking_stack: Stack, fake_llm: FakeLlm, everything_logged: io.StringIO
) -> None:
    fake_llm.on(None, llm.text("好的。"))
    client = thinking_stack.client()
    for number, kind in NUMBERS.items():
        asked = o.ChatInput(
            user_id="i7",
            session_id=f"s-{kind}",
            message=f"我的号码是 {number}，请记一下。",
            history=[o.HistoryMessage(role=o.ROLE_USER, text=f"先前说过 {number}。")],
            keep_prompt=True,
        )
        answered = await client.orchestrator.Chat(o.ChatRequest(input=asked, request_id=new_id()))
        assert {one.field for one in answered.sanitizations} == {
            "input.message",
            "input.history[0].text",
        }
        assert f"[{kind}]" in fake_llm.chats()[-1].of_role("user")
        run = await client.orchestrator.GetRun(
            o.GetRunRequest(run_id=answered.run_id, include_events=True, include_prompt=True)
        )
        turns = await client.memory.ListTurns(m.ListTurnsRequest(user_id="i7"))
        sent = b"".join(call.raw for call in fake_llm.chats()).decode()
        for place in (sent, str(run), str(turns)):
            assert number not in place
    lines = everything_logged.getvalue()
    assert "OrchestratorService/Chat" in lines
    assert not [number for number in NUMBERS if number in lines]


async def test_prompts_and_answers_stand_in_no_log(
    thinking_stack: Stack, fake_llm: FakeLlm, everything_logged: io.StringIO
) -> None:
    fake_llm.on(None, llm.text("回答里的 canary-answer。"))
    client = thinking_stack.client()
    asked = o.ChatInput(
        user_id="logs", message="问题里的 canary-question？", instructions="canary-instructions"
    )
    await client.orchestrator.Chat(o.ChatRequest(input=asked, request_id=new_id()))
    lines = everything_logged.getvalue()
    assert "OrchestratorService/Chat" in lines
    assert "canary-" not in lines


def test_redaction_can_be_switched_off() -> None:
    asked = o.ChatInput(message="请回电 13812345678。")
    assert turn_input(asked, Defaults())[0].message == "请回电 [cn_mobile]。"
    turn, _ = turn_input(asked, Defaults(redact=False))
    assert turn.message == "请回电 13812345678。"
    assert not turn.sanitizations


def test_a_long_history_is_read_from_its_end() -> None:
    lines = [o.HistoryMessage(role=o.ROLE_USER, text="字" * 9_000) for _ in range(20)]
    lines.append(o.HistoryMessage(role=o.ROLE_ASSISTANT, text="最后一句。"))
    turn, _ = turn_input(o.ChatInput(message="？", history=lines), Defaults(history_chars=16_000))
    assert [len(line.text) for line in turn.history] == [9_000, 9_000, 5]
