"""Readers: encodings, formats, tables, and what cannot be read."""

from __future__ import annotations

import contextlib
import io
import random
import time

import pypdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.retriever.chunking import chunk
from services.retriever.reading import blocks as limits
from services.retriever.reading import markdown, reader, tables
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
    parsed = reader.read(Source(data=pdf_of(["Bumblebee computes", "with CKKS quickly."])))
    assert parsed.format is Format.PDF
    assert "CKKS" in parsed.text
    assert {b.page for b in parsed.blocks} == {1}


def test_pdf_has_the_bound_of_every_text(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pdf_of(["Bumblebee computes", "with CKKS quickly."])
    size = len(reader.read(Source(data=data)).text)
    monkeypatch.setattr(limits, "MAX_TEXT_CHARS", size - 10)
    with pytest.raises(ReadError) as caught:
        reader.read(Source(data=data))
    assert caught.value.cause is Unreadable.TOO_LARGE


def test_markdown_blocks_point_into_the_source() -> None:
    source = "---\ntitle: Handbook\n---\n# A\n\ntext\n\n## B\n\n```sh\nx\n\ny\n```\n\n- p\n- q\n"
    parsed = reader.read(Source(text=source))
    assert parsed.title == "Handbook"
    assert all(parsed.text[b.start : b.end] == b.text for b in parsed.blocks)
    code = next(b for b in parsed.blocks if b.kind is Kind.CODE)
    assert code.text == "```sh\nx\n\ny\n```"
    assert code.section == ("A", "B")


def test_code_within_a_line_opens_no_fence() -> None:
    source = "Run\n\n```npm install```\n\n# Limits\n\nThe limit is 5 MB.\n\n- p\n\n```x`\n\nlast\n"
    blocks = reader.read(Source(text=source, format=Format.MARKDOWN)).blocks
    assert [(b.kind, b.text, b.section) for b in blocks] == [
        (Kind.PARAGRAPH, "Run", ()),
        (Kind.PARAGRAPH, "```npm install```", ()),
        (Kind.TITLE, "# Limits", ("Limits",)),
        (Kind.PARAGRAPH, "The limit is 5 MB.", ("Limits",)),
        (Kind.LIST, "- p", ("Limits",)),
        (Kind.PARAGRAPH, "```x`", ("Limits",)),
        (Kind.PARAGRAPH, "last", ("Limits",)),
    ]


@pytest.mark.parametrize(
    ("code", "closed"),
    [
        ("```md\n    ```\n# no heading\n```", True),
        ("```\n\t```\n# no heading\n   ```  ", True),
        ("````\n```\n# no heading\n````", True),
        ("~~~ a`b\n```\n# no heading\n~~~~", True),
        ("   ```\n   x\n      ```", True),
        ("```\n~~~\n# no heading", False),
    ],
)
def test_a_fence_ends_where_its_own_mark_stands(code: str, closed: bool) -> None:
    source = f"{code}\n\n# After\n\nend\n"
    blocks = reader.read(Source(text=source, format=Format.MARKDOWN)).blocks
    assert [b.kind for b in blocks if b.kind is not Kind.PARAGRAPH] == (
        [Kind.CODE, Kind.TITLE] if closed else [Kind.CODE]
    )
    assert blocks[0].text.strip() == (code if closed else source).strip()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("max_connections_per_host", "max_connections_per_host"),
        ("_private and __dunder", "_private and __dunder"),
        ("The `__init__` of ``a`b``", "The __init__ of a`b"),
        ("SELECT * FROM t, 2 * 3 * 4", "SELECT * FROM t, 2 * 3 * 4"),
        ("**Bold**, *it*, __too__, _it_, ***both***", "Bold, it, too, it, both"),
        ("**_x_** and *a __b_c__ d*", "x and a b_c d"),
        ("un*frigging*believable", "unfriggingbelievable"),
        (r"max\_open\_files \*", "max_open_files *"),
        ("See [the _guide_](https://x.y/a_b_c) ![logo_a_b](i.png)", "See the guide logo_a_b"),
        ("配置 **max_conn** 说明", "配置 max_conn 说明"),
        ("`` ` ``", "`"),
        ("`unclosed", "`unclosed"),
    ],
)
def test_a_heading_loses_its_marks_and_nothing_else(written: str, shown: str) -> None:
    assert markdown.plain(written) == shown
    blocks = reader.read(Source(text=f"# {written}\n\nx", format=Format.MARKDOWN)).blocks
    assert blocks[1].section == (shown,)


@pytest.mark.parametrize(
    ("front", "body"),
    [
        ("---\nThe limit is 5 MB.\n---\n\nend", ["The limit is 5 MB.\n---", "end"]),
        ("---\n\nNote: read on.\n\nMore\n\n---\nend", ["Note: read on.", "More", "end"]),
        ("---\n\n---\nend", ["end"]),
        ("---\n# A\n---\nend", ["# A", "end"]),
        ('---\n# c\n"a b": 1\ntags:\n- x\n- y\n\nlong: |\n  Some text.\n---\nend', ["end"]),
        ("---\n标题: x\nlist: [\n  a\n]\nempty:\n...\nend", ["end"]),
    ],
)
def test_front_matter_has_keys(front: str, body: list[str]) -> None:
    blocks = reader.read(Source(text=front, format=Format.MARKDOWN)).blocks
    assert [b.text for b in blocks] == body


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("<!-- x --> The limit is 5 MB.\nMore.", ["The limit is 5 MB.\nMore."]),
        ("<!-- a\nb -->     <!-- c -->Kept\n\nend", ["Kept", "end"]),
        ("<!-- a -->\nend", ["end"]),
        ("<!-- a\n\nb -->  \n\nend", ["end"]),
    ],
)
def test_what_stands_behind_a_comment_is_kept(source: str, texts: list[str]) -> None:
    parsed = reader.read(Source(text=source, format=Format.MARKDOWN))
    assert [b.text for b in parsed.blocks] == texts
    assert all(parsed.text[b.start : b.end] == b.text for b in parsed.blocks)


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


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        (
            "<tr><th>Part<th>Size<tr><td rowspan=2>Bolt<td>5<tr><td></td></tr><tr><td>Nut<td>7",
            ["| Part | Size |", "| Bolt | 5 |", "| Nut | 7 |"],
        ),
        (
            "<tr><td>Part<td>Size<tr><td rowspan=2>Bolt<td>5</tr><tr></tr><tr><td>Nut<td>7",
            ["| Part | Size |", "| Bolt | 5 |", "| Nut | 7 |"],
        ),
        (
            (
                "<tr><td>Part<td>A<td>B<tr><td rowspan=3>Bolt<td>1<td>2<tr><td><td><tr><td>3<td>4"
                "<tr><td>Nut<td>5<td>6"
            ),
            ["| Part | A | B |", "| Bolt | 1 | 2 |", "| Bolt | 3 | 4 |", "| Nut | 5 | 6 |"],
        ),
        (
            (
                "<tr></tr><thead><tr><th rowspan=2>Part<th>Size<tr><td></thead>"
                "<tbody><tr><td>Bolt<td>5<tr><td>Nut<td>7"
            ),
            ["| Part | Size |", "| Bolt | 5 |", "| Nut | 7 |"],
        ),
        (
            (
                "<thead><tr><th rowspan=2>Part<th>Size</thead><tr><td>Bolt<td>5"
                "<tbody><tr><td rowspan=0>Nut<td>7<tr><td>8<tbody><tr><td>Pin<td>9"
            ),
            ["| Part | Size |", "| Bolt | 5 |", "| Nut | 7 |", "| Nut | 8 |", "| Pin | 9 |"],
        ),
    ],
)
def test_a_spanning_cell_hangs_through_empty_rows(rows: str, lines: list[str]) -> None:
    parsed = reader.read(Source(text=f"<table>{rows}</table>", format=Format.HTML))
    assert parsed.text.split("\n") == lines
    assert [b.header for b in parsed.blocks] == lines[:1]


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


@pytest.mark.parametrize(
    "unit",
    [
        "<!---->", "<!-- a --> ", "<a ", '<a b="', "<a b='", "</", "<?", "<!", "<!--", "<![",
        "<![CDATA[", "<table>", "<table><tr><td>", "<td rowspan=1000>x", "<title>", "<svg><title>",
        "<script>", "&#", "# [", "# []( ", "\u0301\u0323", "\u0f71\u0f72", "|-", "- ", "===\n",
        "a\n---\n", "\ufe0f", "x\u200d",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", [Format.HTML, Format.MARKDOWN])
def test_a_document_of_one_repeated_piece_takes_linear_time(unit: str, form: Format) -> None:
    content = unit * (40_000 // len(unit))
    begun = time.process_time()
    try:
        parsed = reader.read(Source(text=content, format=form))
    except ReadError:
        pass
    else:
        chunk(parsed.text, parsed.blocks)
    assert time.process_time() - begun < 5  # what was not linear took minutes


@pytest.mark.parametrize(
    "content",
    [
        "# a" + " " * 100_000 + "#x",
        "# " + "*a _b " * 20_000,
        "# " + "_`" * 20_000,
        "---\n" + "a" * 50_000 + "\n" + "b " * 50_000 + "\n---\nx",
        "<!-- -->x" * 20_000,
        "|a|\n" + " " * 100_000 + "-x",
        "---\ntitle: a" + " " * 100_000 + "b\n---\ntext",
        "<div>" * 10_000 + "</span>" * 20_000 + "x",
        "<table><tr>" + "<td rowspan=3>x" * 20_000 + "<tr><td>y<tr><td>z</table>",
        "<p a=&#" + "9" * 5_000 + ";>x</p>",
    ],
)
@pytest.mark.parametrize("form", [Format.HTML, Format.MARKDOWN, None])
def test_hostile_documents_take_linear_time(content: str, form: Format | None) -> None:
    begun = time.process_time()
    parsed = reader.read(Source(text=content, format=form))
    chunk(parsed.text, parsed.blocks)
    assert time.process_time() - begun < 8


@pytest.mark.parametrize(
    "declaration",
    [
        "<![foo bar]>",
        "<![if !IE]>",
        "<![>",
        "<!x>",
        "<!ELEMENT>",
        "<?php echo 1 ?>",
        "<!-->",
        "</3>",
    ],
)
def test_malformed_declarations_lose_no_text(declaration: str) -> None:
    page = f"<html><p>before</p>{declaration}<p>after 服务器</p>"
    assert "before" in reader.read(Source(text=page)).text
    assert "after 服务器" in reader.read(Source(text=page)).text


def test_what_is_no_tag_is_text() -> None:
    page = '<html><p>a < b and 1 <2 &lt;x&gt; <a href="x>link</a> tail'
    text = reader.read(Source(text=page)).text
    for piece in ("a < b", "1 <2", "<x>", "tail"):
        assert piece in text
    assert reader.read(Source(text="<html><title>T &amp; U<b>v</title><p>x")).title == "T & U<b>v"
    assert "x" in reader.read(Source(text="<html><title>never closed<p>x y")).text
    assert reader.read(Source(text="<p>a&#x1;&#0;&#99999999999;b</p>", format=Format.HTML)).text


def test_s15_absurd_spans_lose_and_double_no_row() -> None:
    rows = "".join(
        f"<tr><td>a{n}<td>b{n}</tr><tr><td colspan=1000>note{n:03d}</tr>" for n in range(300)
    )
    parsed = reader.read(Source(text=f"<table>{rows}</table>", format=Format.HTML))
    for n in range(300):
        assert parsed.text.count(f"note{n:03d}") == 2  # two columns, not a thousand
    spans = "<tr>" + "<td rowspan=1000 colspan=1000>x" * 90 + "</tr>"
    hostile = spans * 5 + "".join(f"<tr><td>row{n:04d}</tr>" for n in range(2_000))
    text = reader.read(Source(text=f"<table>{hostile}</table>", format=Format.HTML)).text
    assert all(text.count(f"row{n:04d}") == 1 for n in range(2_000))


@pytest.mark.parametrize("form", [Format.HTML, Format.MARKDOWN])
def test_s15_an_endless_header_is_not_repeated_whole(form: Format) -> None:
    names = [f"column{n}" for n in range(5_000)]
    if form is Format.HTML:
        head = "<tr>" + "".join(f"<th>{x}" for x in names)
        body = "".join(f"<tr><td>v{n}<td>w" for n in range(400))
        content = f"<table>{head}{body}</table>"
    else:
        rule = "|-" * len(names) + "|\n"
        content = f"|{'|'.join(names)}|\n{rule}" + "".join(f"|v{n}|w|\n" for n in range(400))
    parsed = reader.read(Source(text=content, format=form))
    chunks = chunk(parsed.text, parsed.blocks)
    assert sum(len(c.text) for c in chunks) < 3 * len(content)
    held = "\n".join(c.text for c in chunks)
    assert all(f"column{n}" in held for n in range(5_000))
    assert all(f"| v{n} |" in held for n in range(400)) or form is Format.MARKDOWN


@pytest.mark.parametrize("uri", ["http://[x", "//[::1", "http://[::1/a.md", "a\\b.md"])
def test_any_uri_is_taken(uri: str) -> None:
    assert reader.read(Source(text="# A\n\ntext", uri=uri)).blocks
    reader.file_name(uri)


@pytest.mark.parametrize("span", ["²", "１", "-1", "1e9", "", "0", "99999999999999999999"])
def test_any_span_is_taken(span: str) -> None:
    page = f"<table><tr><td rowspan='{span}' colspan='{span}'>a<td>b<tr><td>c<td>d</table>"
    assert "c" in reader.read(Source(text=page, format=Format.HTML)).text


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (("服务器的配置说明。" * 50).encode() + b"\xff" + ("第二章。" * 50).encode(), "utf-8"),
        (("服务器的配置说明。" * 50).encode()[:-1] + ("第二章。" * 50).encode(), "utf-8"),
        (("服务器的配置说明。" * 50).encode("gbk") + b"\xff" + "第二".encode("gbk"), "gb18030"),
        ("服务器的配置说明".encode("gbk")[:-1], "gb18030"),
        ("서버 메모리 설정에 대한 설명입니다.".encode("euc_kr"), "euc_kr"),
        ("サーバーのメモリ設定について説明します。".encode("euc_jp"), "euc_jp"),
        ("這本書的內容很有意思，請先閱讀。".encode("big5"), "big5"),
        ("服务器的内存、硬盘和电源怎样配置？".encode("gbk"), "gb18030"),
    ],
)
def test_damaged_and_neighbouring_encodings(data: bytes, name: str) -> None:
    text, found = decode(data)
    assert found == name
    assert text.count("\ufffd") <= 1


def test_damaged_pdfs_are_refused_or_read() -> None:
    rng = random.Random(5)
    plain = pdf_of(["Hello World"])
    parts = [
        b"/Kids",
        b"/Length",
        b"/Font",
        b"/Type",
        b" 0 R",
        b"<<",
        b">>",
        b"[",
        b"]",
        b"1",
        b"Tf",
    ]
    marks = [
        b"", b"-1", b"99999999999", b"null", b"(", b"<<", b">>", b"2 0 R", b"5 0 R",
        b"/Filter /LZWDecode ", b"/Filter /JBIG2Decode ", b"/Filter /Encrypt ", b"true",
    ]  # fmt: skip
    for _ in range(600):
        data = plain
        for _ in range(rng.randint(1, 3)):
            part = rng.choice(parts)
            places = [n for n in range(len(data)) if data.startswith(part, n)]
            if places:
                at = rng.choice(places)
                data = data[:at] + rng.choice(marks) + data[at + len(part) :]
        with contextlib.suppress(ReadError):
            reader.read(Source(data=data))
