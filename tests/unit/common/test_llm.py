"""Whole completions over HTTP: failures by kind, what a provider refuses, a lazy import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from pydantic import SecretStr

from services.common.errors import DomainError
from services.common.llm import ChatClient
from services.common.settings import LlmSettings
from tests.support import fake_llm as llm
from tests.support.fake_llm import FakeLlm

ASK = [{"role": "user", "content": "问？"}]


@pytest.fixture
async def chat(fake_llm: FakeLlm) -> AsyncIterator[ChatClient]:
    made = ChatClient(
        LlmSettings(
            base_url=fake_llm.base_url,
            api_key=SecretStr(fake_llm.api_key),
            model=fake_llm.model,
            timeout_s=5,
        )
    )
    yield made
    await made.aclose()


async def test_an_answer_and_its_tokens(chat: ChatClient, fake_llm: FakeLlm) -> None:
    fake_llm.on(None, llm.text("答。"), llm.text("答。", usage=False))
    counted = await chat.complete(ASK)
    assert (counted.text, counted.finish_reason, counted.estimated) == ("答。", "stop", False)
    assert (counted.prompt_tokens, counted.completion_tokens) == (2, 2)
    assert (await chat.complete(ASK)).estimated


@pytest.mark.parametrize(
    ("reply", "reason", "wait"),
    [
        (llm.rate_limited(7), "DEPENDENCY_UNAVAILABLE", 7.0),
        (llm.rate_limited(None), "DEPENDENCY_UNAVAILABLE", 1.0),
        (llm.failure(500), "DEPENDENCY_UNAVAILABLE", 1.0),
        (llm.failure(409), "DEPENDENCY_UNAVAILABLE", 1.0),
        (llm.broken_json(), "DEPENDENCY_UNAVAILABLE", 1.0),
        (llm.Reply(body=b'"no object"'), "DEPENDENCY_UNAVAILABLE", 1.0),
        (llm.Reply(body=b'{"choices": []}'), "DEPENDENCY_UNAVAILABLE", 1.0),
        (llm.Reply(body=b'{"choices": [{}]}'), "DEPENDENCY_UNAVAILABLE", 1.0),
        (llm.failure(401), "PROVIDER_REFUSED", None),
    ],
)
async def test_failures_have_a_reason(
    chat: ChatClient, fake_llm: FakeLlm, reply: llm.Reply, reason: str, wait: float | None
) -> None:
    fake_llm.on(None, reply)
    with pytest.raises(DomainError) as failed:
        await chat.complete(ASK)
    assert (failed.value.reason, failed.value.retry_after_s) == (reason, wait)


async def test_a_wait_given_as_a_date(chat: ChatClient, fake_llm: FakeLlm) -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    fake_llm.on(None, llm.Reply(status=429, headers=(("retry-after", when),)))
    with pytest.raises(DomainError) as failed:
        await chat.complete(ASK)
    assert 80 < (failed.value.retry_after_s or 0) <= 90


async def test_a_refused_response_format_is_left_out_from_then_on(
    chat: ChatClient, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("{}"))
    fake_llm.on(
        lambda call: "response_format" in call.json,
        llm.failure(400, "response_format is not supported"),
    )
    for _ in range(2):
        await chat.complete(ASK, response_format={"type": "json_object"})
    assert ["response_format" in call.json for call in fake_llm.chats()] == [True, False, False]


async def test_a_provider_that_trickles_ends_in_time(chat: ChatClient, fake_llm: FakeLlm) -> None:
    fake_llm.on(None, llm.text("慢", delay_s=30))
    with pytest.raises(DomainError) as failed:
        await chat.complete(ASK, timeout_s=0.3)
    assert failed.value.reason == "DEPENDENCY_UNAVAILABLE"


def test_services_without_a_model_load_no_client() -> None:
    code = (
        "import sys, services.orchestrator.app, services.memory.app, services.memory.worker;"
        "sys.exit('openai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 0
