"""The Java client, built from Debian's grpc-java, talks to the running services."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from pathlib import Path

import grpc_tools
import httpx
import pytest

from nianlun.memory.v1 import memory_pb2 as m
from tests.support import fake_llm as llm
from tests.support.db import Database
from tests.support.fake_llm import FakeLlm
from tests.support.markdown import blocks
from tests.support.rig import Rig, rig, run_program, server_program
from tests.support.stack import Stack

ROOT = Path(__file__).resolve().parents[3]
JAVA = ROOT / "clients/java"
OUT = JAVA / "target/debian"
TOOLS = ("protoc", "grpc_java_plugin", "javac", "java")
JARS = (
    "/usr/share/java/grpc-netty.jar",
    "/usr/share/java/netty-codec-http2.jar",
    "/usr/share/java/netty-tcnative.jar",
    "/usr/share/java/junit-platform-console.jar",
)
PACKAGES = (
    "default-jdk-headless libgrpc-java libprotobuf-java protobuf-compiler "
    "protobuf-compiler-grpc-java-plugin libgeronimo-annotation-1.3-spec-java libnetty-java "
    "libperfmark-java libgoogle-gson-java libnetty-tcnative-java junit5"
)
# What Maven needs to build the project without Maven Central.
MAVEN = [
    Path("/usr/share/maven-repo/org", part)
    for part in (
        "apache/maven/plugins/maven-antrun-plugin",
        "apache/maven/plugins/maven-compiler-plugin/3.10.1",
        "apache/maven/plugins/maven-jar-plugin",
        "apache/maven/plugins/maven-resources-plugin",
        "apache/maven/plugins/maven-surefire-plugin/2.22.3",
        "codehaus/mojo/build-helper-maven-plugin/3.3.0",
        "junit/jupiter/junit-jupiter",
    )
]
MAVEN_MISSING = [str(path) for path in MAVEN if not path.exists()] + (
    [] if shutil.which("mvn") else ["mvn"]
)
# The well-known types come with grpcio-tools, so that libprotobuf-dev is not needed.
INCLUDE = Path(grpc_tools.__file__).parent / "_proto"
IMPORTS = "".join(
    f"import {name};\n"
    for name in (
        "io.nianlun.client.*",
        "io.nianlun.common.v1.*",
        "io.nianlun.memory.v1.AppendTurnResponse",
        "io.nianlun.memory.v1.LoadMemoryResponse",
        "io.nianlun.orchestrator.v1.ChatInput",
        "io.nianlun.orchestrator.v1.ChatResponse",
        "io.nianlun.retriever.v1.*",
        "java.time.Duration",
        "java.util.List",
        "java.util.concurrent.TimeUnit",
    )
)

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


def _fingerprint() -> str:
    digest = hashlib.sha256()
    sources = [*JAVA.rglob("src/**/*.java"), *(ROOT / "protos/nianlun").rglob("*.proto")]
    for path in sorted([*sources, JAVA / "build-debian.sh"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _missing() -> list[str]:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return missing + [jar for jar in JARS if not Path(jar).exists()]


def _is_current(stamp: Path) -> bool:
    return stamp.exists() and stamp.read_text() == _fingerprint()


@pytest.fixture(scope="module")
async def runner() -> Path:
    """The built client and its tests; building takes half a minute: an unchanged one is kept."""
    if missing := _missing():
        pytest.skip(f"Java is not tested: {', '.join(missing)} missing; apt install {PACKAGES}")
    stamp = OUT / "fingerprint"
    if _is_current(stamp):
        return OUT
    build = await asyncio.create_subprocess_exec(
        str(JAVA / "build-debian.sh"),
        str(OUT),
        env={**os.environ, "PROTOBUF_INCLUDE": str(INCLUDE)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await build.communicate()
    assert build.returncode == 0, output.decode()[-4000:]
    stamp.write_text(_fingerprint())
    return OUT


@pytest.fixture
async def running(
    runner: Path,
    stack: Stack,
    thinking_stack: Stack,
    database: Database,
    fake_llm: FakeLlm,
    tmp_path: Path,
) -> AsyncIterator[Rig]:
    async with rig(stack, thinking_stack, fake_llm, database, tmp_path) as found:
        yield found


async def test_a_java_program_does_it_all_and_survives_failures(
    runner: Path, running: Rig, fake_llm: FakeLlm
) -> None:
    done = await run_program(
        str(runner / "test"), "--disable-banner", environment=running.environment
    )
    print(done.output)  # noqa: T201 - the results are what this test shows
    assert done.code == 0, done.output
    assert any(" 0 tests skipped " in line for line in done.lines), done.output
    printed = {line.split(":", 1)[0] for line in done.lines}
    assert printed >= {"append", "load", "search", "stream", "cancel", "deadline", "bad key"}
    assert printed >= {"errors", "retry", "restart", "tls", "export", "erase"}
    # Whoever left the chat has ended the model's work, too: the whole story takes 17 seconds.
    stories = [call for call in fake_llm.chats() if "讲一个长故事" in call.text]
    assert len(stories) == 3
    assert all(call.disconnected_at is not None for call in stories)


async def test_the_example_converses_and_names_the_reason_of_a_failure(
    runner: Path, running: Rig, stack: Stack
) -> None:
    example = (str(runner / "run"), "io.nianlun.examples.Conversation", "u_java")
    done = await run_program(*example, environment=running.environment)
    assert done.code == 0, done.output
    assert done.lines[-1] == "java: ok"
    assert any(line.startswith("turn: ") and line.endswith("#1") for line in done.lines)
    # The turn is there at once, in another session.
    assert any(line.startswith("memory [") and "陈川" in line for line in done.lines)
    assert "step: load_memory" in done.lines
    assert any(line.startswith("delta: ") for line in done.lines)
    assert "answer: 你叫陈川，主要写代码。" in done.lines
    client = stack.client(running.tenant)
    turns = (await client.memory.ListTurns(m.ListTurnsRequest(user_id="u_java"))).turns
    sessions = {turn.session_id: turn for turn in turns}
    assert set(sessions) == {"java-1", "java-2"}
    assert sessions["java-1"].messages[0].text == "我叫陈川，是后端工程师，主要写 Java。"
    stranger = {**running.environment, "NIANLUN_KEY": "nl_" + "x" * 43}
    refused = await run_program(*example, environment=stranger)
    assert refused.code == 1
    assert "failed: ERROR_REASON_UNAUTHENTICATED UNAUTHENTICATED: " in refused.output


async def test_the_chat_controller_keeps_the_line_breaks_between_pieces(
    runner: Path, running: Rig, fake_llm: FakeLlm
) -> None:
    text = "一行字\n二行。\n\n三行。"
    fake_llm.on("逐行写", llm.text(text))
    controller = (str(runner / "run"), "io.nianlun.examples.ChatController")
    server = server_program(*controller, rig=running)
    async with server as url, httpx.AsyncClient(base_url=url, timeout=30) as http:
        who = {"user": "u_java_lines", "session": "s"}
        answer = await http.post("/chat", params=who, content="逐行写。".encode())
    told = [event.split("\n") for event in answer.text.removesuffix("\n\n").split("\n\n")]
    assert all(line.startswith("data: ") for event in told for line in event[1:])
    data = [
        (event[0], "\n".join(line.removeprefix("data: ") for line in event[1:])) for event in told
    ]
    assert "".join(piece for kind, piece in data if kind == "event: delta") == text
    assert data[-1] == ("event: done", text)


async def test_the_chat_controller_streams_and_a_reader_who_leaves_ends_the_work(
    runner: Path, running: Rig, fake_llm: FakeLlm
) -> None:
    controller = (str(runner / "run"), "io.nianlun.examples.ChatController")
    server = server_program(*controller, rig=running)
    async with server as url, httpx.AsyncClient(base_url=url, timeout=30) as http:
        who = {"user": "u_java_web", "session": "s"}
        answer = await http.post("/chat", params=who, content="我叫什么名字？".encode())
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.text.endswith("event: done\ndata: 你叫陈川，主要写代码。\n\n")
        assert answer.text.count("event: delta\n") > 1
        assert (await http.post("/chat", params={"user": "u"}, content=b"x")).status_code == 400
        story = http.stream("POST", "/chat", params=who, content="讲一个长故事".encode())
        async with story as stream:
            async for line in stream.aiter_lines():
                if line == "event: delta":
                    break
    call = next(call for call in fake_llm.chats() if "讲一个长故事" in call.text)
    assert await asyncio.to_thread(call.ended.wait, 5.0)
    assert call.disconnected_at is not None


@pytest.mark.parametrize(
    "page", ["README.md", "README.zh-CN.md", "clients/java/README.md", "docs/howto/java.md"]
)
async def test_the_code_of_a_page_is_a_program_that_runs(
    runner: Path, running: Rig, page: str, tmp_path: Path
) -> None:
    program = tmp_path / "Page.java"
    body = "\n".join(blocks(ROOT / page, "java"))
    program.write_text(
        f"{IMPORTS}public class Page {{\n"
        f"public static void main(String[] args) throws Exception {{\n{body}}}\n}}\n"
    )
    unicode = {"JAVA_TOOL_OPTIONS": "-Dfile.encoding=UTF-8"}
    done = await run_program(
        str(runner / "run"), str(program), environment={**running.environment, **unicode}
    )
    assert done.code == 0, done.output
    assert "你叫陈川，主要写代码。" in done.output


@pytest.mark.skipif(bool(MAVEN_MISSING), reason=f"{', '.join(MAVEN_MISSING)} missing")
async def test_the_maven_project_builds_from_debians_packages(tmp_path: Path) -> None:
    project = tmp_path / "java"
    for part in ("pom.xml", "settings-debian.xml", "src"):
        source, target = JAVA / part, project / part
        project.mkdir(exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    done = await run_program(
        "mvn",
        *("--batch-mode", "--settings", "settings-debian.xml", "-Ddebian", "package"),
        *(f"-Dmaven.repo.local={tmp_path / 'repository'}", f"-Dprotos={ROOT / 'protos'}"),
        f"-Dprotobuf.include={INCLUDE}",
        cwd=project,
        within_s=800,
    )
    assert done.code == 0, done.output[-4000:]
    assert (project / "target/nianlun-client-0.1.0.jar").exists()
    results = [line for line in done.lines if "Tests run: " in line]
    assert any("Tests run: 6, Failures: 0, Errors: 0, Skipped: 0" in line for line in results)


def test_the_maven_project_matches_the_sources() -> None:
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    pom = ET.parse(JAVA / "pom.xml").getroot()
    assert pom.findtext("m:properties/m:maven.compiler.release", namespaces=space) == "17"
    artifacts = {
        d.findtext("m:artifactId", namespaces=space)
        for d in pom.iterfind("m:dependencies/m:dependency", space)
    }
    assert artifacts >= {"grpc-protobuf", "grpc-stub", "${grpc.transport}", "protobuf-java"}
    source_root = pom.findtext("m:properties/m:protos", namespaces=space)
    assert source_root is not None
    assert (JAVA / source_root.removeprefix("${project.basedir}/")).resolve() == ROOT / "protos"
