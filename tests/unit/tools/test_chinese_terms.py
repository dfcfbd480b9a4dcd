"""The Chinese pages and the console call one thing by one name."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    ROOT / "README.zh-CN.md",
    ROOT / "services/orchestrator/gateway/static/js/i18n.js",
    *sorted((ROOT / "docs/zh").glob("*.md")),
]
# What a reader would take for another thing, and the word that the pages use.
ELSEWHERE = {
    "配方": "方案 (recipe)",
    "后期交互": "延迟交互 (late interaction)",
    "嵌入模型": "向量模型 (embedding model)",
    "令牌向量": "词元向量 (token vectors)",
    "令牌数": "词元数 (tokens of a model)",
    "令牌预算": "词元预算 (tokens of a model)",
    "输入令牌": "输入词元 (tokens of a model)",
    "输出令牌": "输出词元 (tokens of a model)",
    "词法": "关键词 (lexical)",
    "把握": "置信度 (confidence)",
    "请求号": "请求编号 (request id)",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_one_word_for_one_thing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {bad: good for bad, good in ELSEWHERE.items() if bad in text} == {}
