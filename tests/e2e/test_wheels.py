"""The distributions: built, installed where nothing of the project is, and used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from services.local.stack import Stack

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# What a user's shell does not have: this project on any path.
_CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("PYTHON", "NIANLUN_", "VIRTUAL_ENV"))
}


def _run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=_CLEAN | environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _wheel(source: Path, out: Path) -> Path:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet")
    _run(*pip, "--no-deps", "--wheel-dir", out, source, cwd=out)
    (wheel,) = out.glob("*.whl")
    return wheel


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return set(file.namelist())


def _empty_venv(folder: Path) -> Path:
    _run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _wheel(ROOT / "clients/python", tmp_path_factory.mktemp("client"))


@pytest.mark.timeout(900)
def test_the_client_alone_in_an_empty_environment(
    client_wheel: Path, running: Stack, tmp_path: Path
) -> None:
    names = _names(client_wheel)
    assert "nianlun/py.typed" in names
    assert "nianlun/memory/v1/memory_pb2.py" in names
    assert "nianlun/memory/v1/memory_pb2_grpc.pyi" in names
    assert not any(name.startswith("services/") for name in names)
    python = _empty_venv(tmp_path / "venv")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    _run(*pip, client_wheel, cwd=tmp_path)
    program = (
        "import sys, json, nianlun\n"
        "from nianlun import Client, AsyncClient, chat_input\n"
        "assert nianlun.__file__.startswith(sys.prefix), nianlun.__file__\n"
        "targets, key = json.loads(sys.argv[1])\n"
        "with Client(targets, key=key) as client:\n"
        "    client.append_turn('wheel', 's', 'My name is Lin.')\n"
        "    print(client.load_memory('wheel', 'Who am I?').rendered)\n"
        "try:\n"
        "    with __import__('nianlun.testing').testing.stack(): pass\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    where = json.dumps([dict(running.info.targets), running.info.key])
    said = _run(python, "-c", program, where, cwd=tmp_path)
    assert "Lin" in said
    assert "install the distribution `nianlun`" in said


@pytest.mark.timeout(900)
def test_the_mcp_server_needs_the_client_only(
    client_wheel: Path, running: Stack, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    wheel = _wheel(ROOT / "clients/mcp", out)
    python = _empty_venv(tmp_path / "venv")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    _run(*pip, client_wheel, wheel, cwd=tmp_path)
    program = (
        "import asyncio, os, sys\n"
        "from mcp import Client\n"
        "from mcp.client.stdio import StdioServerParameters\n"
        "async def main():\n"
        "    server = StdioServerParameters(command=sys.argv[1], env=dict(os.environ))\n"
        "    async with Client(server) as client:\n"
        "        await client.call_tool('remember', {'text': 'My name is Lin.'})\n"
        "        print((await client.call_tool('recall', {'query': 'name'})).content[0].text)\n"
        "asyncio.run(main())\n"
    )
    targets = {f"NIANLUN_{k.upper()}_TARGET": v for k, v in running.info.targets.items()}
    said = _run(
        python,
        "-c",
        program,
        python.with_name("nianlun-mcp"),
        cwd=tmp_path,
        NIANLUN_API_KEY=running.info.key,
        NIANLUN_MCP_USER="wheel-mcp",
        **targets,
    )
    assert "Lin" in said


@pytest.mark.timeout(900)
def test_the_whole_from_its_wheel_starts_a_stack(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    wheel = _wheel(ROOT, out)
    wanted = {str(path.relative_to(ROOT)) for path in ROOT.glob("services/*/migrations/*.sql")}
    assert wanted
    wanted |= {
        "services/local/Procfile",
        "services/orchestrator/gateway/static/index.html",
        "nianlun/py.typed",
        "nianlun/testing/fixtures.py",
        "nianlun/memory/v1/memory_pb2.pyi",
        "nianlun_mcp/__main__.py",
    }
    assert wanted - _names(wheel) == set()
    python = _empty_venv(tmp_path / "venv")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps")
    _run(*pip, wheel, cwd=tmp_path)
    # The dependencies are those of this environment, without what its .pth files add.
    site = next((tmp_path / "venv/lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    program = (
        "import services, sys, nianlun.testing\n"
        "assert services.__file__.startswith(sys.prefix), services.__file__\n"
        "with nianlun.testing.stack() as client:\n"
        "    client.append_turn('u', 's', 'My name is Lin.')\n"
        "    print(client.load_memory('u', 'Who am I?').rendered)\n"
    )
    assert "Lin" in _run(python, "-c", program, cwd=tmp_path)
    # Packages may lie where nobody may write: a running stack keeps what it makes elsewhere.
    assert list(site.rglob(".nianlun")) == []
