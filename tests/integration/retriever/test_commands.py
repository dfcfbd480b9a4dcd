"""`nianlun collections|ingest|search|reembed|calibrate` against a running retriever."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from services.cli.main import app
from tests.integration.retriever.conftest import Shelf
from tests.support.stack import Stack


class Terminal:
    """Runs commands as one tenant."""

    def __init__(self, stack: Stack, shelf: Shelf) -> None:
        self._where = ["--target", stack.target("retriever"), "--key", shelf.client.tenant.key]

    async def run(self, *command: str) -> Result:
        """The command's exit code and output, as on a wide terminal: paths stay whole."""
        runner = CliRunner(env={"COLUMNS": "400"})
        return await asyncio.to_thread(runner.invoke, app, [*command, *self._where])


@pytest.fixture
def terminal(retriever_stack: Stack, shelf: Shelf) -> Terminal:
    return Terminal(retriever_stack, shelf)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "guide.md").write_text("# Guide\n\n## Seals\n\nSeals rest on the ice.\n")
    (tmp_path / "部署.txt").write_text("服务器的部署说明。", encoding="gb18030")
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 not really")
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "ignored.bin").write_bytes(b"\x00\x01")
    return tmp_path


async def test_a_folder_is_stored_and_what_cannot_be_read_is_named(
    terminal: Terminal, folder: Path
) -> None:
    stored = await terminal.run("ingest", "docs", str(folder))
    assert stored.exit_code == 1
    assert "broken.pdf" in stored.output
    assert "empty.txt" in stored.output
    assert "ignored.bin" not in stored.output
    assert "created 2" in stored.output
    assert "4/4" in stored.output  # the progress bar's last state
    again = await terminal.run("ingest", "docs", str(folder / "guide.md"))
    assert again.exit_code == 0
    assert "unchanged 1" in again.output
    found = await terminal.run("search", "seals on ice", "--in", "docs", "--explain", "--no-gate")
    assert found.exit_code == 0
    assert "Guide > Seals" in found.output
    for column in ("leg", "rank", "contribution", "dense", "lexical", "fused", "recipe knowledge"):
        assert column in found.output
    chinese = await terminal.run("search", "服务器部署", "--in", "docs", "--no-gate")
    assert "服务器的部署说明" in chinese.output


async def test_collections_are_made_listed_shown_and_deleted(terminal: Terminal) -> None:
    made = await terminal.run("collections", "create", "shelf", "--name", "A shelf")
    assert "created shelf with model small" in made.output
    twice = await terminal.run("collections", "create", "shelf")
    assert twice.exit_code == 1
    assert "Traceback" not in twice.output
    listed = await terminal.run("collections", "list")
    assert "shelf" in listed.output
    shown = await terminal.run("collections", "show", "shelf")
    assert "A shelf" in shown.output
    assert "active" in shown.output
    gone = await terminal.run("collections", "delete", "shelf", "--yes")
    assert "deleted 0 documents" in gone.output
    missing = await terminal.run("collections", "show", "shelf")
    assert missing.exit_code == 1
    assert "shelf" in missing.output


async def test_a_collection_moves_to_another_model_and_back(
    terminal: Terminal, shelf: Shelf
) -> None:
    await shelf.create()
    await shelf.put({f"d{n}": f"passage {n} about topic{n % 5}" for n in range(30)})
    moved = await terminal.run("reembed", "docs", "large")
    assert moved.exit_code == 0
    assert "switched true" in moved.output
    assert "30/30" in moved.output
    back = await terminal.run("reembed", "docs", "--rollback")
    assert "docs now uses small" in back.output
    filled = await terminal.run("reembed", "docs", "--backfill")
    assert filled.exit_code == 0
    nowhere = await terminal.run("reembed", "docs", "no-such-model")
    assert nowhere.exit_code == 1


async def test_a_collection_is_calibrated_from_labelled_questions(
    terminal: Terminal, shelf: Shelf, tmp_path: Path
) -> None:
    await shelf.create()
    await shelf.put({f"d{n}": f"passage {n} about topic{n} and word{n}" for n in range(40)})
    pairs = tmp_path / "pairs.jsonl"
    lines = [{"query": f"topic{n} word{n}", "document_ids": [f"d{n}"]} for n in range(30)]
    pairs.write_text("\n".join(map(json.dumps, lines)))
    fitted = await terminal.run("calibrate", "docs", "--pairs", str(pairs))
    assert fitted.exit_code == 0, fitted.output
    assert "dense_low" in fitted.output
    pairs.write_text('{"question": "x"}')
    refused = await terminal.run("calibrate", "docs", "--pairs", str(pairs))
    assert refused.exit_code == 2
    assert "pairs.jsonl:1" in refused.output.replace("\n", "")
