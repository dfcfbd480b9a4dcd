"""Word, PowerPoint and Excel: read with the extra `ingest`, and named where it is missing."""

from __future__ import annotations

import io
import re
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, NoReturn

import markitdown
import openpyxl
import pptx
import pytest
from markitdown.converters import DocxConverter

from services.retriever.reading import blocks, reader
from services.retriever.reading.blocks import Format, ReadError, Source, Unreadable

ROOT = Path(__file__).resolve().parents[3]
_OFFICE = "http://schemas.openxmlformats.org"


def _word() -> bytes:
    """The smallest Word file: one heading, one paragraph."""
    body = (
        '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>部署手册</w:t></w:r></w:p>'
        "<w:p><w:r><w:t>The R6900 G5 takes at most 8 TB.</w:t></w:r></w:p>"
    )
    parts = {
        "[Content_Types].xml": (
            f'<Types xmlns="{_OFFICE}/package/2006/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.'
            'relationships+xml"/><Override PartName="/word/document.xml" ContentType="application/'
            'vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
        ),
        "_rels/.rels": (
            f'<Relationships xmlns="{_OFFICE}/package/2006/relationships"><Relationship Id="r1" '
            f'Type="{_OFFICE}/officeDocument/2006/relationships/officeDocument" '
            'Target="word/document.xml"/></Relationships>'
        ),
        "word/document.xml": (
            f'<w:document xmlns:w="{_OFFICE}/wordprocessingml/2006/main">'
            f"<w:body>{body}</w:body></w:document>"
        ),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return out.getvalue()


def _excel() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.append(["型号", "memory"])
    sheet.append(["R6900 G5", "8 TB"])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def _slides() -> bytes:
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[0]).shapes.title.text = "The R6900 G5 takes 8 TB"
    out = io.BytesIO()
    deck.save(out)
    return out.getvalue()


MAKERS = {"docx": _word, "xlsx": _excel, "pptx": _slides}


@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
@pytest.mark.parametrize("kind", MAKERS)
def test_office_files_are_read(kind: str, named: bool) -> None:
    parsed = reader.read(Source(data=MAKERS[kind](), uri=f"a.{kind}" if named else ""))
    assert parsed.format is Format.OTHER
    assert "R6900 G5" in parsed.text
    assert "8 TB" in parsed.text


@pytest.mark.parametrize("missing", ["markitdown", "mammoth"])
def test_without_the_extra_the_error_names_it(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "markitdown":
        monkeypatch.setitem(sys.modules, "markitdown", None)
    else:  # what `markitdown` without its own extras says of a Word file

        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise markitdown.MissingDependencyException("mammoth")

        monkeypatch.setattr(DocxConverter, "convert", refuse)
    with pytest.raises(ReadError) as caught:
        reader.read(Source(data=_word(), uri="a.docx"))
    assert caught.value.cause is Unreadable.NO_CONVERTER
    command = re.search(r"\.venv/bin/pip install -e '\.\[(\w+)\]'", caught.value.message)
    assert command is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert any(
        need.startswith("markitdown") for need in project["optional-dependencies"][command[1]]
    )


def test_an_archive_that_would_fill_the_memory_is_not_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.BytesIO(_word())
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/extra.xml", bytes(129 * 1024 * 1024))
    assert len(out.getvalue()) < 1024 * 1024
    monkeypatch.setattr(DocxConverter, "convert", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(ReadError) as caught:
        reader.read(Source(data=out.getvalue(), uri="a.docx"))
    assert caught.value.cause is Unreadable.TOO_LARGE


@pytest.mark.parametrize("kind", MAKERS)
def test_office_files_have_the_bound_of_every_text(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "MAX_TEXT_CHARS", 10)
    with pytest.raises(ReadError) as caught:
        reader.read(Source(data=MAKERS[kind](), uri=f"a.{kind}"))
    assert caught.value.cause is Unreadable.TOO_LARGE


def test_a_broken_office_file_is_no_missing_converter() -> None:
    with pytest.raises(ReadError) as caught:
        reader.read(Source(data=_word()[:300], uri="a.docx"))
    assert caught.value.cause is Unreadable.BROKEN


def test_what_reads_pdf_is_in_the_light_set() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert any(re.match(r"pypdf\b", need) for need in project["dependencies"])
