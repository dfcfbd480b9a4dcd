"""Every command and every Python block of the documents, run as a reader would run them.

One stack serves all documents; each document has a folder of its own that looks like the clone. A
block is run, is covered by a named test, or says in the document why it cannot run here.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from services.local.stack import Stack
from tests.support.doc_blocks import SHELL, Block, blocks
from tests.support.fake_llm import FakeLlm

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

_SINGLE = (
    "README.md",
    "README.zh-CN.md",
    "clients/python/README.md",
    "clients/mcp/README.md",
    "docs/quickstart.md",
    "docs/zh/quickstart.md",
)
DOCUMENTS = sorted(
    {*_SINGLE, *(str(path.relative_to(ROOT)) for path in (ROOT / "docs/howto").glob("*.md"))}
)

# Targets of make take minutes and do what these do; that they exist is looked at here.
MAKE = {
    "demo": "tests/e2e/test_demo.py",
    "serve": "tests/e2e/test_two_sessions.py",
    "test": "tests/unit",
    "help": "Makefile",
}
# Pages about other languages: their own tests build with the same tools, in the same folders.
ELSEWHERE = {
    "docs/howto/java.md": "tests/integration/java",
    "docs/howto/typescript.md": "tests/integration/typescript",
}
_BLOCK_S = 120
_ACTIVATE = "source .venv/bin/activate"
_OURS = re.compile(r"^(?:from|import) (?:nianlun|openai|mcp|httpx)\b", re.MULTILINE)
_COMMAND = re.compile(r"(?:^|\$\(|&&|\|)\s*(?:nianlun|python)\b")


@pytest.fixture
def clone(tmp_path: Path, running: Stack) -> Path:
    """A folder that looks like the clone beside a running `make serve`."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / ".nianlun").symlink_to(Path(running.info.log).parent)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


@pytest.fixture
def environment(running: Stack, fake_llm: FakeLlm) -> dict[str, str]:
    """A reader's shell with `.venv/bin` on the path, and a language model for agents."""
    paths = ("", "clients/python", "clients/mcp", "protos/gen")
    python = os.pathsep.join(str(ROOT / part) for part in paths)
    search = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NIANLUN_")}
    return {
        **kept,
        **fake_llm.environment,
        "PATH": search,
        "PYTHONPATH": python,
        "NIANLUN_TESTING_HOME": str(Path(running.info.log).parent),
    }


@pytest.fixture
def new_database(running: Stack) -> Iterator[Callable[[], str]]:
    """Makes empty databases on the server of the stack, and drops them afterwards."""
    made: list[str] = []

    def make() -> str:
        name = f"doc_{secrets.token_hex(4)}"
        with psycopg.connect(running.info.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        made.append(name)
        return make_conninfo(**{**conninfo_to_dict(running.info.dsn), "dbname": name})

    yield make
    with psycopg.connect(running.info.dsn, autocommit=True) as connection:
        for name in made:
            connection.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_of_a_document(
    document: str, clone: Path, environment: dict[str, str], new_database: Callable[[], str]
) -> None:
    for block in blocks(ROOT / document, document):
        _in_the_environment_of_the_clone(block)
        if block.kind == "covered":
            assert (ROOT / block.argument).exists(), f"{block}: there is no {block.argument}"
        elif block.kind == "file":
            target = clone / block.argument
            target.write_text(block.text, encoding="utf-8")
            compile(block.text, block.argument, "exec")
        elif block.kind == "database":
            dsn = new_database()
            _run(block, block.text.replace(block.argument, f"'{dsn}'"), clone, environment)
        elif block.kind == "run" and not _covered(block):
            _run(block, block.text, clone, environment)


def test_targets_of_make_exist_and_are_tested() -> None:
    for target, test in MAKE.items():
        assert (ROOT / test).exists(), test
        done = subprocess.run(
            ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("bash", "false | cat"),
        ("bash", "echo $NOT_SET_ANYWHERE"),
        ("console", "$ false\nfine"),
        ("python", "assert 0"),
        ("bash", "nianlun search x --in no-such-collection"),
    ],
)
def test_a_block_that_fails_fails_its_test(
    language: str, text: str, clone: Path, environment: dict[str, str]
) -> None:
    with pytest.raises(AssertionError, match="page:1"):
        _run(Block("page", 1, language, text, "run"), text, clone, environment)


@pytest.mark.parametrize(
    ("language", "text", "needs"),
    [
        ("bash", "nianlun jobs list", True),
        ("bash", "X=$(python -c 'print(1)')", True),
        ("python", "from nianlun import Client", True),
        ("bash", ".venv/bin/nianlun jobs list", False),
        ("bash", "curl localhost", False),
        ("python", "import json", False),
    ],
)
def test_a_page_says_how_to_get_its_commands(language: str, text: str, needs: bool) -> None:
    block = Block("docs/index.md", 1, language, text, "run")
    assert _needs_the_clone(block) is needs
    if needs:
        with pytest.raises(AssertionError, match=r"docs/index\.md:1: .*bin/activate"):
            _in_the_environment_of_the_clone(block)
    _in_the_environment_of_the_clone(replace(block, document="README.md", line=1_000))


def test_a_target_that_nothing_tests_is_named() -> None:
    with pytest.raises(AssertionError, match="who tests"):
        _covered(Block("page", 1, "bash", "make clean", "run"))
    assert not _covered(Block("page", 1, "bash", "make demo\nls", "run"))


def _in_the_environment_of_the_clone(block: Block) -> None:
    """A reader's shell knows neither `nianlun` nor the clone's Python until the page says how."""
    if _needs_the_clone(block):
        lines = (ROOT / block.document).read_text(encoding="utf-8").splitlines()[: block.line]
        assert any(_ACTIVATE in line for line in lines), f"{block}: nothing says `{_ACTIVATE}`"


def _needs_the_clone(block: Block) -> bool:
    if block.language == "python":
        return bool(_OURS.search(block.text))
    return block.language in SHELL and any(_COMMAND.search(line) for line in block.commands)


def _covered(block: Block) -> bool:
    """Whether other tests run just this: targets of make, and tools of other languages."""
    if block.language not in SHELL:
        return False
    if block.document in ELSEWHERE:
        tested = ROOT / ELSEWHERE[block.document]
        assert list(tested.glob("test_*.py")), f"{block}: nothing tests this page"
        return True
    targets = [command.split("#")[0].split() for command in block.commands]
    if not all(words[:1] == ["make"] for words in targets):
        return False
    for words in targets:
        assert words[1:], f"{block}: which target?"
        assert set(words[1:]) <= set(MAKE), f"{block}: who tests {words}?"
    return True


def _run(block: Block, text: str, folder: Path, environment: dict[str, str]) -> None:
    if block.language == "python":
        command = [sys.executable, "-c", text]
    else:
        script = "\n".join(block.commands) if block.language == "console" else text
        command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_BLOCK_S,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{text}\n{done.stdout}\n{done.stderr}"
