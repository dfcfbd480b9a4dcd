"""Names of documents that the command line gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.cli.ingest import _files, document_ids


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("docs/guide.md", "docs/zh/guide.md", "docs/zh/more.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return Path("docs")


def test_a_document_is_named_by_its_path_in_the_folder(docs: Path) -> None:
    files = list(_files([docs]))
    assert list(document_ids(files, [docs]).values()) == [
        "guide.md",
        "zh/guide.md",
        "zh/more.md",
    ]


def test_two_files_of_one_name_get_their_whole_paths(docs: Path) -> None:
    roots = [docs / "guide.md", docs / "zh"]
    files = list(_files(roots))
    assert list(document_ids(files, roots).values()) == [
        "docs/guide.md",
        "docs/zh/guide.md",
        "more.md",
    ]


def test_a_file_that_is_named_twice_is_stored_once(docs: Path) -> None:
    assert len(list(_files([docs, docs / "zh", docs / "guide.md"]))) == 3
