"""The TypeScript client, built with npm, talks to the running services from Node."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import fake_llm as llm
from tests.support.db import Database
from tests.support.fake_llm import FakeLlm
from tests.support.rig import rig, run_program
from tests.support.stack import Stack

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "clients/typescript"
OLDEST_NODE = (20, 19)
STORY = "很久很久以前，" * 200

pytestmark = [pytest.mark.typescript, pytest.mark.timeout(300)]


def _why_not() -> str | None:
    """Why Node cannot run this package; None where it can."""
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} missing; apt install nodejs npm"
    found = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    major, minor, *_ = found.strip().removeprefix("v").split(".")
    if (int(major), int(minor)) < OLDEST_NODE:
        return f"Node {'.'.join(map(str, OLDEST_NODE))} or newer is needed, here is {found.strip()}"
    return None


def _fingerprint(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()


async def _npm(*arguments: str) -> None:
    quiet = {"NO_COLOR": "1"}
    done = await run_program("npm", *arguments, cwd=PACKAGE, environment=quiet, within_s=240)
    assert done.code == 0, f"npm {' '.join(arguments)}\n{done.output[-4000:]}"


async def _once(stamp: Path, fingerprint: str, *arguments: str) -> None:
    """Run npm where what it was last run for has changed."""
    if not stamp.exists() or stamp.read_text() != fingerprint:
        await _npm(*arguments)
        stamp.write_text(fingerprint)


@pytest.fixture(scope="module")
async def package() -> Path:
    """The package with its dependencies, generated and compiled."""
    if why := _why_not():
        pytest.skip(f"TypeScript is not tested: {why}")
    lock = PACKAGE / "package-lock.json"
    installed = PACKAGE / "node_modules/.nianlun-installed"
    install = ("ci", "--no-audit", "--no-fund", "--prefer-offline")
    await _once(installed, _fingerprint(lock), *install)
    sources = [*PACKAGE.glob("*.json"), PACKAGE / "buf.gen.yaml"]
    for folder in ("src", "test", "examples"):
        sources += [p for p in (PACKAGE / folder).rglob("*.ts") if "gen" not in p.parts]
    sources += (ROOT / "protos/nianlun").rglob("*.proto")
    # The folder `dist` is made by the compiler, so the stamp vanishes with it.
    await _once(PACKAGE / "dist/.nianlun-built", _fingerprint(*sources), "run", "build")
    return PACKAGE


def _script(model: FakeLlm) -> None:
    model.on("我叫什么名字", llm.text("你叫陈川，主要写代码。"))
    model.on("讲一个长故事", llm.text(STORY, piece_delay_s=0.05))


async def test_the_sources_are_linted_and_the_unit_tests_pass(package: Path) -> None:
    await _npm("run", "lint")
    done = await run_program("npm", "test", cwd=package, environment={})
    assert done.code == 0, done.output
    assert "# fail 0" in done.lines
    assert "# skipped 0" in done.lines


async def test_a_node_program_does_it_all_and_survives_failures(
    package: Path,
    stack: Stack,
    thinking_stack: Stack,
    database: Database,
    fake_llm: FakeLlm,
    tmp_path: Path,
) -> None:
    _script(fake_llm)
    async with rig(stack, thinking_stack, database, tmp_path) as running:
        done = await run_program(
            "npm", "run", "test:stack", cwd=package, environment=running.environment
        )
    print(done.output)  # noqa: T201 - the results are what this test shows
    assert done.code == 0, done.output
    printed = [line.split(":", 1)[0] for line in done.lines]
    for result in ("append", "load", "search", "stream", "cancel", "deadline", "bad key"):
        assert result in printed, result
    assert {"retry", "restart", "tls", "export", "erase"} <= set(printed)
    # Whoever left the chat has ended the model's work, too: the whole story takes 17 seconds.
    stories = [call for call in fake_llm.chats() if "讲一个长故事" in call.text]
    assert len(stories) == 2
    assert all(call.disconnected_at is not None for call in stories)
