"""The Java client, built from Debian's grpc-java, talks to the running services."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import grpc_tools
import pytest

from nianlun.memory.v1 import memory_pb2 as m
from tests.support.db import Database, Tenant
from tests.support.stack import Client, Stack

ROOT = Path(__file__).resolve().parents[3]
JAVA = ROOT / "clients/java"
OUT = JAVA / "target/debian"
TOOLS = ("protoc", "grpc_java_plugin", "javac", "java")
JARS = ("/usr/share/java/grpc-netty.jar", "/usr/share/java/netty-codec-http2.jar")
PACKAGES = (
    "default-jdk-headless libgrpc-java libprotobuf-java protobuf-compiler "
    "protobuf-compiler-grpc-java-plugin libgeronimo-annotation-1.3-spec-java libnetty-java "
    "libperfmark-java libgoogle-gson-java"
)
EXAMPLE = "io.nianlun.examples.Conversation"

pytestmark = pytest.mark.java


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
    """The built client; building takes half a minute, so an unchanged one is used again."""
    if missing := _missing():
        pytest.skip(f"Java is not tested: {', '.join(missing)} missing; apt install {PACKAGES}")
    stamp = OUT / "fingerprint"
    if _is_current(stamp):
        return OUT / "run"
    # The well-known types come with grpcio-tools, so that libprotobuf-dev is not needed.
    include = Path(grpc_tools.__file__).parent / "_proto"
    build = await asyncio.create_subprocess_exec(
        str(JAVA / "build-debian.sh"),
        str(OUT),
        env={**os.environ, "PROTOBUF_INCLUDE": str(include)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await build.communicate()
    assert build.returncode == 0, output.decode()[-4000:]
    stamp.write_text(_fingerprint())
    return OUT / "run"


async def _run(runner: Path, environment: dict[str, str], *args: str) -> tuple[int, str]:
    # The platform's character set is what a bare server has: Chinese must survive it.
    process = await asyncio.create_subprocess_exec(
        str(runner),
        EXAMPLE,
        *args,
        env={"PATH": os.environ["PATH"], "LC_ALL": "POSIX", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), 60)
    except TimeoutError:
        process.kill()
        raise
    return process.returncode or 0, out.decode() + err.decode()


@pytest.mark.timeout(300)
async def test_a_java_program_appends_loads_and_streams(
    stack: Stack, client: Client, runner: Path
) -> None:
    environment = {
        "NIANLUN_KEY": client.tenant.key,
        "NIANLUN_MEMORY": stack.target("memory"),
        "NIANLUN_ORCHESTRATOR": stack.target("orchestrator"),
    }
    code, output = await _run(runner, environment, "u_java")
    assert code == 0, output
    lines = output.splitlines()
    assert lines[-1] == "java: ok"
    assert any(line.startswith("turn: ") and line.endswith("#1") for line in lines)
    # The turn is there at once, in another session.
    memory = [line for line in lines if line.startswith("memory [")]
    assert any("陈川" in line for line in memory), output
    assert "step: load_memory" in lines
    assert any(line.startswith("delta: ") for line in lines)
    answer = next(line for line in lines if line.startswith("answer: "))
    assert "陈川" in answer
    turns = (await client.memory.ListTurns(m.ListTurnsRequest(user_id="u_java"))).turns
    sessions = {turn.session_id: turn for turn in turns}
    assert set(sessions) == {"java-1", "java-2"}
    assert sessions["java-1"].messages[0].text == "我叫陈川，是后端工程师，主要写 Java。"


@pytest.mark.timeout(300)
async def test_a_java_program_sees_the_published_reason(
    stack: Stack, database: Database, runner: Path
) -> None:
    stranger = Tenant("nobody", "nl_" + "x" * 43)
    environment = {"NIANLUN_KEY": stranger.key, "NIANLUN_MEMORY": stack.target("memory")}
    code, output = await _run(runner, environment)
    assert code == 1
    assert "failed: ERROR_REASON_UNAUTHENTICATED UNAUTHENTICATED" in output


def test_the_maven_project_matches_the_sources() -> None:
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    pom = ET.parse(JAVA / "pom.xml").getroot()
    assert pom.findtext("m:properties/m:maven.compiler.release", namespaces=space) == "17"
    artifacts = {
        d.findtext("m:artifactId", namespaces=space)
        for d in pom.iterfind("m:dependencies/m:dependency", space)
    }
    assert artifacts >= {"grpc-protobuf", "grpc-stub", "grpc-netty-shaded", "protobuf-java"}
    source_root = pom.find(".//m:protoSourceRoot", space)
    assert source_root is not None
    assert source_root.text is not None
    assert (JAVA / source_root.text.removeprefix("${project.basedir}/")).resolve() == (
        ROOT / "protos"
    )
