"""A 400 about one caller's value changes nothing for others; one about a parameter is learnt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import structlog

from services.common.llm import ModelError, Provider, failures
from tests.support import fake_llm as llm
from tests.support.fake_llm import Call, FakeLlm

ASK = [{"role": "user", "content": "问？"}]
ODD: dict[str, Any] = {
    "max_tokens": 32_768,
    "temperature": 1.5,
    "response_format": {"type": "json_schema", "json_schema": {"name": "odd", "schema": {}}},
}
USUAL: dict[str, Any] = {
    "max_tokens": 50,
    "temperature": 0.2,
    "response_format": {"type": "json_schema", "json_schema": {"name": "usual", "schema": {}}},
}


@pytest.fixture
async def provider(fake_llm: FakeLlm) -> AsyncIterator[Provider]:
    made = Provider(fake_llm.base_url, fake_llm.api_key, fake_llm.model)
    yield made
    await made.close()


async def _left_out(provider: Provider, **parts: Any) -> frozenset[str]:
    with failures():
        return (await provider.create({"messages": ASK, **parts}, 5.0)).left_out


def _holds(part: str, value: Any) -> Callable[[Call], bool]:
    return lambda call: call.json.get(part) == value


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("max_tokens", "max_tokens is too large: 32768. This model supports at most 16384."),
        ("max_tokens", "Range of input length should be [1, 8192]: max_tokens"),
        ("max_tokens", "max_tokens 超过上限"),
        ("temperature", "temperature: 1.5 is above the maximum of 1"),
        ("temperature", "Unsupported value: 'temperature' does not support 1.5 with this model."),
        ("temperature", "values of temperature greater than 1 are not supported"),
        (
            "response_format",
            "Invalid schema for response_format 'odd': In context=(), 'minLength' is not permitted",
        ),
        ("response_format", "bad request"),
    ],
)
async def test_a_refused_value_is_left_out_of_its_own_call_alone(
    provider: Provider, fake_llm: FakeLlm, part: str, said: str
) -> None:
    fake_llm.on(None, llm.text("好。"))
    fake_llm.on(_holds(part, ODD[part]), llm.failure(400, said))
    with structlog.testing.capture_logs() as logged:
        assert await _left_out(provider, **{part: ODD[part]}) == {part}
    assert await _left_out(provider, **{part: USUAL[part]}) == set()
    assert [part in call.json for call in fake_llm.chats()] == [True, False, True]
    assert [(one["parameter"], one["until"]) for one in logged] == [(part, "this call")]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("temperature", "Unsupported parameter: 'temperature' is not supported with this model."),
        (
            "temperature",
            "Unsupported value: 'temperature' does not support 0.2. Only the default (1) is.",
        ),
        ("max_tokens", "Unrecognized request argument supplied: max_tokens"),
        ("response_format", "This response_format type is unavailable now"),
        ("response_format", "json_schema: Extra inputs are not permitted"),
        ("response_format", "该模型不支持 response_format"),
    ],
)
async def test_a_parameter_that_a_provider_does_not_know_is_learnt(
    provider: Provider, fake_llm: FakeLlm, part: str, said: str
) -> None:
    fake_llm.on(None, llm.text("好。"))
    fake_llm.on(lambda call: part in call.json, llm.failure(400, said))
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            assert await _left_out(provider, **{part: USUAL[part]}) == {part}
    assert [part in call.json for call in fake_llm.chats()] == [True, False, False]
    assert [(one["parameter"], one["until"]) for one in logged] == [(part, "restart")]


async def test_tools_are_the_services_own_however_they_are_refused(
    provider: Provider, fake_llm: FakeLlm
) -> None:
    said = '"auto" tool choice requires --enable-auto-tool-choice to be set'
    fake_llm.on(None, llm.text("好。"))
    fake_llm.on(lambda call: "tools" in call.json, llm.failure(400, said))
    for _ in range(2):
        assert await _left_out(provider, tools=[], temperature=0.2) == {"tools"}
    assert len(fake_llm.chats()) == 3


async def test_a_limit_under_its_other_name_is_refused_by_value_as_well(
    provider: Provider, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.text("好。"))
    fake_llm.on(
        _holds("max_completion_tokens", 32_768),
        llm.failure(400, "max_completion_tokens is too large: 32768"),
    )
    fake_llm.on(
        lambda call: "max_tokens" in call.json,
        llm.failure(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'."),
    )
    assert await _left_out(provider, max_tokens=50, tools=[]) == set()
    assert await _left_out(provider, max_tokens=32_768, tools=[]) == {"max_tokens"}
    assert await _left_out(provider, max_tokens=50, tools=[]) == set()
    sent = [call.json for call in fake_llm.chats()]
    assert all("tools" in one for one in sent)
    assert [one.get("max_completion_tokens") for one in sent] == [None, 50, 32_768, None, 50]


async def test_what_is_about_the_messages_is_nobodys_parameter(
    provider: Provider, fake_llm: FakeLlm
) -> None:
    fake_llm.on(None, llm.failure(400, "This model's context length is 8192 tokens."))
    with pytest.raises(ModelError):
        await _left_out(provider, temperature=0.2)
    assert len(fake_llm.chats()) == 1
