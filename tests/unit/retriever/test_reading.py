"""Readers: encodings, formats, tables, and what cannot be read."""

from __future__ import annotations

import io
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.retriever.reading import reader, tables
from services.retriever.reading.blocks import Format, Kind, ReadError, Source, Unreadable
from services.retriever.reading.encoding import decode
from services.retriever.reading.tables import Cell

CHINESE = "我们最近配置的重排模型是什么？服务器的内存不足，需要扩容。" * 4


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030", "gbk"])
def test_chinese_text_in_any_encoding(encoding: str) -> None:
    assert decode(CHINESE.encode(encoding))[0] == CHINESE


def test_traditional_text_in_big5() -> None:
    text = "這是一份關於伺服器記憶體設定的說明文件，請依照步驟操作。" * 4
    assert decode(text.encode("big5"))[0] == text


def test_western_text_in_windows_1252() -> None:
    text = "Der Bär fraß Äpfel – zwölf Stück – und fühlte sich übel. " * 6
    assert decode(text.encode("cp1252"))[0] == text


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"", Unreadable.EMPTY),
        (b" \n\t ", Unreadable.EMPTY),
        (bytes(range(256)) * 20, Unreadable.BINARY),
        (b"\x89PNG\r\n\x1a\n" + bytes(200), Unreadable.BINARY),
        (b"%PDF-1.7\nnot really a pdf", Unreadable.BROKEN),
        (b"<html><body><script>x()</script></body></html>", Unreadable.NO_TEXT),
    ],
)
def test_unreadable_content_is_named(data: bytes, cause: Unreadable) -> None:
    with pytest.raises(ReadError) as caught:
        reader.read(Source(data=data))
    assert caught.value.cause is cause


def test_encrypted_pdf_is_refused_and_plain_pdf_read() -> None:
    pypdf = pytest.importorskip("pypdf")
    writer = pypdf.PdfWriter()
    writer.add_blank_page(200, 200)
    plain = io.BytesIO()
    writer.write(plain)
    with pytest.raises(ReadError) as caught:
        reader.read(Source(data=plain.getvalue()))
    assert caught.value.cause is Unreadable.NO_TEXT
    writer.encrypt("secret")
    locked = io.BytesIO()
    writer.write(locked)
    with pytest.raises(ReadError) as caught:
        reader.read(Source(data=locked.getvalue()))
    assert caught.value.cause is Unreadable.ENCRYPTED


def pdf_of(lines: list[str]) -> bytes:
    """A minimal one-page PDF with one text line a line."""
    shown = " ".join(f"({line}) Tj 0 -14 Td" for line in lines)
    stream = f"BT /F1 12 Tf 72 720 Td {shown} ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length " + str(len(stream)).encode() + b" >>\nstream\n" + stream + b"\nendstream",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{o:010d} 00000 n \n".encode() for o in offsets)
    out += f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF".encode()
    return bytes(out)


def test_pdf_text_with_its_page() -> None:
    pytest.importorskip("pypdf")
    parsed = reader.read(Source(data=pdf_of(["Bumblebee computes", "with CKKS quickly."])))
    assert parsed.format is Format.PDF
    assert "CKKS" in parsed.text
    assert {b.page for b in parsed.blocks} == {1}


def test_markdown_blocks_point_into_the_source() -> None:
    source = "---\ntitle: Handbook\n---\n# A\n\ntext\n\n## B\n\n```sh\nx\n\ny\n```\n\n- p\n- q\n"
    parsed = reader.read(Source(text=source))
    assert parsed.title == "Handbook"
    assert all(parsed.text[b.start : b.end] == b.text for b in parsed.blocks)
    code = next(b for b in parsed.blocks if b.kind is Kind.CODE)
    assert code.text == "```sh\nx\n\ny\n```"
    assert code.section == ("A", "B")


def test_html_leaves_boilerplate_out() -> None:
    page = (
        "<html><head><title>Otters</title><style>p{}</style></head><body><nav>Home About</nav>"
        "<div class='cookie banner'>accept</div><main><h1>Otters</h1><p>Live in <b>rivers</b>.</p>"
        "<pre>code  here</pre></main><footer>imprint</footer></body></html>"
    )
    parsed = reader.read(Source(text=page))
    assert parsed.title == "Otters"
    assert "Live in rivers." in parsed.text
    assert "code  here" in parsed.text
    for word in ("Home", "accept", "imprint", "p{}"):
        assert word not in parsed.text


@pytest.mark.parametrize(
    "page",
    [
        "<p>a<div>b</p></div><td>c</table></tr>text",
        "<table><tr><td>a<table><tr><td>inner</td></tr>",
        "<div>" * 3_000 + "deep" + "</span>" * 10,
        "<html><body><p>unclosed <b>bold <i>text",
        "<table><tr><td rowspan=999999 colspan=999999>x</td></tr><tr><td>y</td></tr></table>",
        "<![CDATA[ x ]]><p>a</p><!-- never closed",
    ],
)
def test_broken_html_is_read_somehow(page: str) -> None:
    parsed = reader.read(Source(text=page, format=Format.HTML))
    assert parsed.text.strip()


def test_nested_table_is_neither_lost_nor_doubled() -> None:
    inner = "<table><tr><th>k</th><th>v</th></tr><tr><td>inner1</td><td>inner2</td></tr></table>"
    page = (
        "<table><tr><th>Name</th><th>Data</th></tr>"
        f"<tr><td>outer1</td><td>{inner}</td></tr><tr><td>outer2</td><td>z</td></tr></table>"
    )
    text = reader.read(Source(text=page, format=Format.HTML)).text
    for word in ("inner1", "inner2", "outer1", "outer2"):
        assert text.count(word) == 1


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=5),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=60, deadline=None)
def test_expanded_rows_hold_every_cell(shape: list[list[tuple[int, int]]]) -> None:
    rows = [
        [Cell(f"c{r}.{c}", rowspan, colspan) for c, (rowspan, colspan) in enumerate(row)]
        for r, row in enumerate(shape)
    ]
    grid = tables.expand(rows)
    assert len(grid) == len(rows)
    for r, row in enumerate(rows):
        for cell in row:
            assert cell.text in grid[r]


def test_pieces_keep_whole_rows_and_the_header() -> None:
    rng = random.Random(0)
    grid = [["H1", "H2"]] + [[f"r{n}", "x" * rng.randint(1, 60)] for n in range(300)]
    made = tables.pieces(grid, 1)
    rows = [line for piece in made for line in piece.body.split("\n")]
    assert rows == [tables.line(row) for row in grid[1:]]
    assert all(piece.header == "| H1 | H2 |" for piece in made)
    assert all(piece.last - piece.first <= tables.MAX_ROWS for piece in made)
    assert all(len(p.header) + len(p.body) <= tables.MAX_CHARS for p in made)


@given(st.binary(max_size=400))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        parsed = reader.read(Source(data=data))
    except ReadError:
        return
    assert parsed.text.strip()
    assert "\0" not in parsed.text
