"""Tables of the command line: what is to be copied is whole."""

from __future__ import annotations

from uuid import uuid4

import pytest
from rich.console import Console
from rich.table import Table

from services.cli.calls import print_table, whole


def _table(id_: str) -> Table:
    table = Table(whole("job"), "kind", "state", "done", "attempts", "error", "created")
    table.add_row(id_, "digest", "failed", "1/1 turns", "3", "a long reason " * 4, "2026-05-04")
    return table


def test_ids_are_whole_on_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    id_ = str(uuid4())
    Console(width=80).print(_table(id_))
    assert id_ in capsys.readouterr().out


def test_a_pipe_is_not_cut_at_80_characters(capsys: pytest.CaptureFixture[str]) -> None:
    id_ = str(uuid4())
    print_table(_table(id_))
    (row,) = [line for line in capsys.readouterr().out.splitlines() if id_ in line]
    assert "2026-05-04" in row
    assert "1/1 turns" in row
