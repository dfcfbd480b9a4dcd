"""The fake language model does what it is told; otherwise tests that use it prove nothing."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.support import fake_llm as llm
from tests.support.fake_llm import FakeLlm

MESSAGES: Any = [{"role": "user", "content": "你好"}]


@pytest.fixture
def client(fake_llm: FakeLlm) -> openai.OpenAI:
    return openai.OpenAI(base_url=fake_llm.base_url, api_key=fake_llm.api_key, max_retries=0)


def _ask(client: openai.OpenAI) -> str:
    answer = client.chat.completions.create(model="m", messages=MESSAGES)
    return answer.choices[0].message.content or ""


def test_replies_come_in_order_and_the_last_one_stays(
    fake_llm: FakeLlm, client: openai.OpenAI
) -> None:
    fake_llm.on("你好", llm.text("一"), llm.text("二"))
    fake_llm.on("别的", llm.text("三"))
    assert [_ask(client) for _ in range(3)] == ["一", "二", "二"]
    assert len(fake_llm.chats()) == 3
    assert b"\xe4\xbd\xa0\xe5\xa5\xbd" in fake_llm.calls[0].raw


def test_failures(fake_llm: FakeLlm, client: openai.OpenAI) -> None:
    fake_llm.on(None, llm.rate_limited(2), llm.failure(503), llm.broken_json())
    with pytest.raises(openai.RateLimitError) as limited:
        _ask(client)
    assert limited.value.response.headers["retry-after"] == "2"
    with pytest.raises(openai.InternalServerError):
        _ask(client)
    with pytest.raises(ValueError, match="Unterminated string"):
        _ask(client)


def test_streams_tools_and_cuts(fake_llm: FakeLlm, client: openai.OpenAI) -> None:
    fake_llm.on(None, llm.tool_call("search", {"q": "年轮"}), llm.cut("abcdefghijkl", after=2))
    first = list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    calls = first[0].choices[0].delta.tool_calls
    assert calls is not None
    assert calls[0].function is not None
    assert calls[0].function.name == "search"
    pieces: list[str | None] = []
    second = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    with pytest.raises(openai.APIConnectionError):
        pieces.extend(chunk.choices[0].delta.content for chunk in second)
    assert pieces == ["abcd", "efgh"]


def test_a_client_that_leaves_is_noticed(fake_llm: FakeLlm, client: openai.OpenAI) -> None:
    fake_llm.on(None, llm.text("很慢很慢很慢很慢", piece_delay_s=5))
    stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    next(iter(stream))
    stream.close()
    assert fake_llm.calls[0].ended.wait(1)
    assert fake_llm.calls[0].disconnected_at is not None


def test_embeddings(fake_llm: FakeLlm, client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="e", input=["甲", "乙"], encoding_format="float")
    assert [item.index for item in answer.data] == [0, 1]
    assert answer.data[0].embedding == fake_llm.embeddings.vector("甲")
