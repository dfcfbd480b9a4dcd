"""The reader of documents: no block escapes, no marker is empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_blocks import Block, DocError, blocks


def _read(tmp_path: Path, text: str) -> list[Block]:
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    return list(blocks(path, "page.md"))


def test_shell_and_python_run_others_are_not_looked_at(tmp_path: Path) -> None:
    text = (
        "```bash\nls\n```\n\n```json\n{}\n```\n\n- item\n\n    ```python\n    print(1)\n    ```\n"
    )
    found = _read(tmp_path, text)
    assert [(each.language, each.kind, each.line) for each in found] == [
        ("bash", "run", 1),
        ("python", "run", 11),
    ]
    assert found[1].text == "print(1)\n"


def test_a_marker_counts_for_the_block_right_after_it_only(tmp_path: Path) -> None:
    text = (
        "<!-- doc-test: skip: needs a GPU here -->\n```bash\nls\n```\n\n```bash\npwd\n```\n\n"
        "<!-- doc-test: skip: needs a GPU here -->\n\nText between.\n\n```sh\nls\n```\n"
        "<!-- doc-test: covered: tests/e2e/test_demo.py: runs the demo -->\n```bash\nmake\n```\n"
    )
    assert [(each.kind, each.argument) for each in _read(tmp_path, text)] == [
        ("skip", "needs a GPU here"),
        ("run", ""),
        ("run", ""),
        ("covered", "tests/e2e/test_demo.py"),
    ]


def test_a_titled_block_is_a_file(tmp_path: Path) -> None:
    (found,) = _read(tmp_path, '```python title="conftest.py"\nx = 1\n```\n')
    assert (found.kind, found.argument) == ("file", "conftest.py")


@pytest.mark.parametrize(
    "text",
    [
        "```\nls\n```\n",
        "<!-- doc-test: skip: -->\n```bash\nls\n```\n",
        "<!-- doc-test: skip: no -->\n```bash\nls\n```\n",
        "<!-- doc-test: covered: tests/e2e/test_demo.py -->\n```bash\nls\n```\n",
        "<!-- doc-test: sometimes: on some machines -->\n```bash\nls\n```\n",
        "<!-- doc-test -->\n```bash\nls\n```\n",
    ],
)
def test_what_cannot_be_understood_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(DocError):
        _read(tmp_path, text)


def test_commands_are_told_from_comments_prompts_and_output() -> None:
    shell = Block("p", 1, "bash", "# first\nls \\\n  -l\n\nmake demo  # why\n", "run")
    assert shell.commands == ["ls    -l", "make demo  # why"]
    console = Block("p", 1, "console", "$ ls\nfile\n$ pwd\n", "run")
    assert console.commands == ["ls", "pwd"]
