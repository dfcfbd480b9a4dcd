"""Chunks: sizes, boundaries, offsets, kinds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.retriever import chunking
from services.retriever.chunking import MAX_TOKENS, Chunk, chunk
from services.retriever.reading import reader
from services.retriever.reading import sentences as sentences_module
from services.retriever.reading.blocks import Kind, ReadError, Source
from services.retriever.reading.graphemes import safe_cut
from services.retriever.reading.sentences import estimate_tokens, sentences, split_long

FAMILY = "👨‍👩‍👧‍👦"


def chunks_of(text: str) -> tuple[str, list[Chunk]]:
    parsed = reader.read(Source(text=text))
    return parsed.text, chunk(parsed.text, parsed.blocks)


def test_chinese_is_cut_between_sentences() -> None:
    text, parts = chunks_of(
        "今天我们讨论缓存的设计方案。它有三层结构！每一层都可以独立扩展吗？" * 30
    )
    assert len(parts) > 3
    assert all(p.text[-1] in "。！？" for p in parts)
    assert all(p.tokens <= MAX_TOKENS for p in parts)
    assert "".join(p.text for p in parts) == text


def test_english_abbreviations_end_no_sentence() -> None:
    text = "Dr. Smith met Prof. Jones, e.g. on Monday. They spoke about Fig. 3 at 3.5 km. Good."
    found = [text[a:b].strip() for a, b in sentences(text)]
    assert found[0].endswith("on Monday.")
    assert len(found) == 3


def test_code_stays_whole_and_carries_its_section() -> None:
    code = "```python\n" + "\n".join(f"line_{n} = {n}" for n in range(150)) + "\n```"
    _, parts = chunks_of(f"# Guide\n\n## Use\n\nbefore\n\n{code}\n\nafter")
    held = [p for p in parts if p.kind is Kind.CODE]
    assert [p.text for p in held] == [code]
    assert held[0].section == ("Guide", "Use")
    assert held[0].indexed_text("Manual").startswith("Manual > Guide > Use\n```python")


def test_kinds_by_section_name() -> None:
    _, parts = chunks_of("# T\n\n## 摘要\n\n一段摘要文字。\n\n## References\n\n[1] A. Author.\n")
    assert [p.kind for p in parts] == [Kind.ABSTRACT, Kind.NOTE]


def test_a_heading_alone_is_still_found() -> None:
    _, parts = chunks_of("# Only a title\n")
    assert [(p.kind, p.text) for p in parts] == [(Kind.TITLE, "# Only a title")]


@pytest.mark.parametrize("piece", [FAMILY, "🇨🇳🇩🇪", "e\u0301", "👍🏽"])
def test_no_cut_inside_what_is_one_character(piece: str) -> None:
    text = "a" + piece + "b"
    for at in range(len(text) + 1):
        cut = safe_cut(text, at)
        assert text[:cut] + text[cut:] == text
        assert cut in (0, 1, 1 + len(piece), len(text)) or (piece == "🇨🇳🇩🇪" and cut == 3)


def test_overlong_text_without_any_boundary() -> None:
    text = FAMILY * 400
    spans = split_long(text, 50)
    assert "".join(text[a:b] for a, b in spans) == text
    assert all(a % len(FAMILY) == 0 for a, _ in spans)


@given(st.text(max_size=1_500))
@settings(max_examples=120, deadline=None)
def test_offsets_are_right_and_nothing_is_lost(text: str) -> None:
    try:
        parsed = reader.read(Source(text=text))
    except ReadError:
        return
    parts = chunk(parsed.text, parsed.blocks)
    for part in parts:
        if not part.header:
            assert parsed.text[part.start : part.end] == part.text
    kept = {c for p in parts for c in (*p.text, *"".join(p.section))}
    if parsed.format.name == "TEXT":
        assert {c for c in parsed.text if c.isalnum()} <= kept


def test_token_estimate_is_near_the_models() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    del tokenizers
    # Counted with the XLM-R vocabulary: 24 and 21 tokens without special ones.
    english = "The retriever keeps collections of documents and searches them with three legs."
    chinese = "检索服务保存文档集合，并用三路召回来搜索它们。"
    assert 12 <= estimate_tokens(english) <= 26
    assert 11 <= estimate_tokens(chinese) <= 26


def test_equal_text_has_an_equal_hash() -> None:
    assert chunking.content_hash("a") == chunking.content_hash("a") != chunking.content_hash("b")


ODD_SHAPES = [
    "长",
    "长,",
    "No. ",
    "a",
    " ",
    "word ",
    "？",
    "a\n",
    "1.",
    "\U0001f469\u200d\U0001f467",
]


@pytest.mark.parametrize("unit", ODD_SHAPES)
def test_long_texts_of_any_shape_are_cut_once_and_in_linear_work(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = 0
    plain = sentences_module._tokens

    def counting(text: str) -> float:
        nonlocal looked_at
        looked_at += len(text)
        return plain(text)

    monkeypatch.setattr(sentences_module, "_tokens", counting)
    work = []
    for size in (5_000, 20_000):
        looked_at = 0
        text = (unit * size)[:size]
        spans = split_long(text, 50)
        assert [a for a, _ in spans[1:]] == [b for _, b in spans[:-1]]
        assert (spans[0][0], spans[-1][1]) == (0, len(text))
        assert all(b - a <= 50 * 8 for a, b in spans)
        assert all(plain(text[a:b]) <= 51 for a, b in spans)
        work.append(looked_at)
    assert work[1] <= 5 * work[0], "four times the text, four times the work"


@pytest.mark.parametrize(
    "text",
    [
        "# " + "heading " * 20_000 + "\n\nbody one\n\nbody two",
        "|a|b|\n|-|-|\n|" + "cell " * 20_000 + "|x|\n|tail|y|\n",
        "```\n" + "code()" * 20_000 + "\n```\n",
        "# t\n\n" + "\ufe0f" * 50_000,
    ],
)
def test_no_block_makes_an_endless_chunk(text: str) -> None:
    source, chunks = chunks_of(text)
    assert max(len(c.text) for c in chunks) < 10_000
    assert max(len("".join(c.section)) for c in chunks) <= 300
    for one in chunks:
        assert one.text.endswith(source[one.start : one.end]) or one.header
    for word in ("body two", "tail"):
        assert (word in text) == any(word in c.text for c in chunks)


def test_passages_without_a_token_are_packed_in_linear_work() -> None:
    _, chunks = chunks_of("\n\n".join(["\u3000\u200b\u2060x"] * 20 + ["\u200b"] * 60_000))
    assert any("x" in c.text for c in chunks)
