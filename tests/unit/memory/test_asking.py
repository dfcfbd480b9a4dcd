"""Questions that ask for earlier talk."""

from __future__ import annotations

import pytest

from services.memory.asking import asks_back


@pytest.mark.parametrize(
    "query",
    [
        "What was that tool called last time?",
        "what did we pick for infrastructure again?",
        "Which infra tool did we decide on?",
        "Remind me what we chose",
        "What's the name of the thing we settled on?",
        "上次选的那个笔记软件叫什么来着？",
        "之前说的那个软件是哪个",
        "我们最后定了哪个？",
        "上回聊的笔记工具叫啥",
        "那个软件名字我忘了，提醒一下",
        "那就remind me what we chose吧",
    ],
)
def test_e08_asks_back(query: str) -> None:
    assert asks_back(query)


@pytest.mark.parametrize(
    "query",
    [
        "aubergines",
        "How do I cook aubergines?",
        "Sort the list before printing it",
        "How does git remember my password?",
        "茄子怎么做",
        "睡觉之前要做什么",
        "帮我写个排序算法",
        "我说中文吗",
        "x" * 100_000,
    ],
)
def test_s07_does_not_ask_back(query: str) -> None:
    assert not asks_back(query)
