"""What says no, and what only looks like it."""

from __future__ import annotations

import pytest

from services.search.negation import negates


@pytest.mark.parametrize(
    "text",
    [
        "效果非常好", "未来三年会增长", "无线网络很稳定", "工厂在无锡", "产品不仅快而且稳",
        "兩個不同的方案", "质量不断提高", "不少用户喜欢", "无论如何都要做", "南非的客户",
        "财产被没收", "差不多一百人", "不得不停机", "是否需要", "不锈钢外壳",
        "It is not only fast but cheap.", "There is no doubt.", "See No. 5.", "A note on knots.",
    ],
)  # fmt: skip
def test_words_that_deny_nothing(text: str) -> None:
    assert not negates(text)


@pytest.mark.parametrize(
    "text",
    [
        "效果不好", "效果非常不好", "没有问题", "沒有問題", "他不同意这个方案", "未经许可",
        "无法连接", "无需配置", "并非如此", "非法访问", "不支持 Windows", "尚未完成", "从不出错",
        "產品無法使用", "不", "It is not fast.", "It doesn’t work.", "It won't start.",
        "It runs without a model.", "No model is needed.",
    ],
)  # fmt: skip
def test_words_that_deny(text: str) -> None:
    assert negates(text)
