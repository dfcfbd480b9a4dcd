"""The TypeScript client, built with npm, talks to the running services from Node."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.db import Database
from tests.support.fake_llm import FakeLlm
from tests.support.markdown import blocks
from tests.support.rig import Rig, rig, run_program, server_program
from tests.support.stack import Stack

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "clients/typescript"
OLDEST_NODE = (20, 19)

pytestmark = [pytest.mark.typescript, pytest.mark.timeout(900)]


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
    done = await run_program("npm", *arguments, cwd=PACKAGE, environment=quiet, within_s=600)
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


async def test_the_sources_are_linted_and_the_unit_tests_pass(package: Path) -> None:
    await _npm("run", "lint")
    done = await run_program("npm", "test", cwd=package)
    assert done.code == 0, done.output
    assert "# fail 0" in done.lines
    assert "# skipped 0" in done.lines


@pytest.fixture
async def running(
    package: Path,
    stack: Stack,
    thinking_stack: Stack,
    database: Database,
    fake_llm: FakeLlm,
    tmp_path: Path,
) -> AsyncIterator[Rig]:
    async with rig(stack, thinking_stack, fake_llm, database, tmp_path) as found:
        yield found


async def test_a_node_program_does_it_all_and_survives_failures(
    package: Path, running: Rig, fake_llm: FakeLlm
) -> None:
    done = await run_program(
        "npm", "run", "test:stack", cwd=package, environment=running.environment
    )
    print(done.output)  # noqa: T201 - the results are what this test shows
    assert done.code == 0, done.output
    printed = {line.split(":", 1)[0] for line in done.lines}
    assert printed >= {"append", "load", "search", "stream", "cancel", "deadline", "bad key"}
    assert printed >= {"retry", "restart", "tls", "export", "erase"}
    # Whoever left the chat has ended the model's work, too: the whole story takes 17 seconds.
    stories = [call for call in fake_llm.chats() if "讲一个长故事" in call.text]
    assert len(stories) == 2
    assert all(call.disconnected_at is not None for call in stories)


async def test_the_example_converses_and_names_the_reason_of_a_failure(
    package: Path, running: Rig
) -> None:
    example = ("node", "dist/examples/conversation.js", "u_ts")
    done = await run_program(*example, cwd=package, environment=running.environment)
    assert done.code == 0, done.output
    assert any(line.startswith("memory: ") and "陈川" in line for line in done.lines)
    assert "step: load_memory" in done.lines
    assert any(line.startswith("delta: ") for line in done.lines)
    assert done.lines[-1] == "answer: 你叫陈川，主要写代码。"
    stranger = {**running.environment, "NIANLUN_KEY": "nl_" + "x" * 43}
    refused = await run_program(*example, cwd=package, environment=stranger)
    assert refused.code == 1
    assert refused.lines[-1].startswith("failed: UNAUTHENTICATED: ")


async def test_the_chat_server_streams_and_a_reader_who_leaves_ends_the_work(
    package: Path, running: Rig, fake_llm: FakeLlm
) -> None:
    server = server_program("node", "dist/examples/chat-server.js", cwd=package, rig=running)
    async with server as url, httpx.AsyncClient(base_url=url, timeout=30) as http:
        question = {"user": "u_ts_web", "session": "s", "message": "我叫什么名字？"}
        answer = await http.post("/chat", json=question)
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.text.startswith("event: ")
        assert 'event: done\ndata: {"text":"你叫陈川，主要写代码。"}\n\n' in answer.text
        assert answer.text.count("event: delta\n") > 1
        assert (await http.post("/chat", json={"user": "u"})).status_code == 400
        assert (await http.get("/elsewhere")).status_code == 404
        story = {"user": "u_ts_web", "session": "s", "message": "讲一个长故事"}
        async with http.stream("POST", "/chat", json=story) as stream:
            async for line in stream.aiter_lines():
                if line == "event: delta":
                    break
    call = next(call for call in fake_llm.chats() if "讲一个长故事" in call.text)
    assert await asyncio.to_thread(call.ended.wait, 5.0)
    assert call.disconnected_at is not None


def _as_local_stack(running: Rig, home: Path) -> dict[str, str]:
    """The environment of a program that finds these services as those of `make serve`."""
    names = ("embedder", "retriever", "memory", "orchestrator")
    targets = {name: running.environment[f"NIANLUN_{name.upper()}_TARGET"] for name in names}
    info = {"key": running.tenant.key, "targets": targets}
    (home / "stack.json").write_text(json.dumps(info))
    return {**running.environment, "NIANLUN_HOME": str(home)}


@pytest.mark.parametrize(
    "page",
    ["README.md", "README.zh-CN.md", "clients/typescript/README.md", "docs/howto/typescript.md"],
)
async def test_the_code_of_a_page_is_a_program_that_runs(
    package: Path, running: Rig, page: str, tmp_path: Path
) -> None:
    program = package / "dist/pages" / (Path(page).parent.name or "root") / "page.ts"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("\n".join(blocks(ROOT / page, "ts")))
    options = {
        "extends": "../../../tsconfig.json",
        "compilerOptions": {"rootDir": ".", "outDir": "js"},
        "include": ["page.ts"],
    }
    (program.parent / "tsconfig.json").write_text(json.dumps(options))
    compiled = await run_program("npx", "tsc", "-p", str(program.parent), cwd=package)
    assert compiled.code == 0, compiled.output
    done = await run_program(
        "node",
        str(program.parent / "js/page.js"),
        cwd=package,
        environment=_as_local_stack(running, tmp_path),
    )
    assert done.code == 0, done.output
    assert "你叫陈川，主要写代码。" in done.output


async def test_another_project_installs_the_package_and_compiles_against_it(
    package: Path, running: Rig, tmp_path: Path
) -> None:
    packed = await run_program(
        "npm", "pack", "--ignore-scripts", "--pack-destination", str(tmp_path), cwd=package
    )
    assert packed.code == 0, packed.output
    (archive,) = tmp_path.glob("nianlun-client-*.tgz")
    (tmp_path / "package.json").write_text('{"type": "module", "private": true}')
    install = ("install", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts")
    installed = await run_program("npm", *install, str(archive), cwd=tmp_path)
    assert installed.code == 0, installed.output
    (tmp_path / "page.ts").write_text("\n".join(blocks(ROOT / "README.md", "ts")))
    # No Node types, all checks: the declarations must stand on their own.
    options = ("--strict", "--target", "ES2022", "--module", "NodeNext", "--noEmit", "false")
    compiled = await run_program(
        str(package / "node_modules/.bin/tsc"), *options, "--types", "", "page.ts", cwd=tmp_path
    )
    assert compiled.code == 0, compiled.output
    environment = _as_local_stack(running, tmp_path)
    done = await run_program("node", "page.js", cwd=tmp_path, environment=environment)
    assert done.code == 0, done.output
    assert done.lines == ["你叫陈川，主要写代码。"]
