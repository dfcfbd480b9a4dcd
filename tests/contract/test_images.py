"""deploy/Dockerfile and the scripts beside it, read by the linters made for them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import dockerfile

REPOSITORY = dockerfile.REPOSITORY
STAGES = dockerfile.parse()
DOCKERFILES = sorted((REPOSITORY / "deploy").rglob("*Dockerfile"))
SCRIPTS = sorted((REPOSITORY / "deploy").rglob("*.sh"))
# Version numbers of what `pip install .` brings are in constraints.txt, which the rule cannot see.
IGNORED = ("--ignore", "DL3013")


def _tool(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert found, f"{name} is not installed; it is in the extra `deploy`"
    return found


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_hadolint_finds_nothing(path: Path) -> None:
    done = subprocess.run(
        [_tool("hadolint"), "--no-color", *IGNORED, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_hadolint_would_find_something(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian:latest\nRUN apt-get update && apt-get install curl\n")
    done = subprocess.run(
        [_tool("hadolint"), "--no-color", str(bad)], capture_output=True, text=True, check=False
    )
    assert {"DL3007", "DL3008"} <= set(re.findall(r"DL\d+", done.stdout))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(path: Path) -> None:
    done = subprocess.run(
        [_tool("shellcheck"), "--external-sources", str(path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert path.stat().st_mode & 0o111, f"{path.name} cannot be executed"


def test_what_is_copied_is_in_the_repository_and_in_the_build_context() -> None:
    ignored = (REPOSITORY / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    for stage in STAGES.values():
        for item in stage.instructions:
            words = [word for word in item.text.split() if not word.startswith("--")]
            if item.name != "COPY" or "--from=" in item.text:
                continue
            for source in words[:-1]:
                assert (REPOSITORY / source).exists(), source
                kept = [line[1:] for line in ignored if line.startswith("!")]
                assert any(source == k or source.startswith(f"{k}/") for k in kept), source


@pytest.mark.parametrize("target", STAGES)
def test_every_base_is_a_stage_or_has_a_version(target: str) -> None:
    base = STAGES[target].base
    if base in STAGES:
        return
    assert base == "${PYTHON_IMAGE}"
    text = dockerfile.DOCKERFILE.read_text()
    argument = re.search(r"^ARG PYTHON_IMAGE=(\S+)$", text, re.MULTILINE)
    assert argument is not None
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", argument[1])


def test_the_last_user_of_every_process_is_nobody_special() -> None:
    for target in STAGES:
        image = dockerfile.image(STAGES, target)
        if image.entrypoint:
            assert image.user == "10001", target


def test_the_entrypoint_hands_over_secrets_and_nothing_else(tmp_path: Path) -> None:
    script = tmp_path / "entrypoint.sh"
    text = (REPOSITORY / "deploy" / "entrypoint.sh").read_text()
    script.write_text(text.replace("/run/secrets", str(tmp_path)))
    script.chmod(0o755)
    (tmp_path / "key").write_text("two words $HOME\n")
    environment = {
        "PATH": "/usr/bin:/bin",
        "NIANLUN_SERVICE_KEY_FILE": f"{tmp_path}/key",
        "NIANLUN_TLS_CERT_FILE": f"{tmp_path}/key",
        "OTHER_FILE": "/etc/hostname",
    }
    done = subprocess.run(
        [str(script), "env"], env=environment, capture_output=True, text=True, check=True
    )
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert seen["NIANLUN_SERVICE_KEY"] == "two words $HOME"
    assert "NIANLUN_SERVICE_KEY_FILE" not in seen
    assert seen["NIANLUN_TLS_CERT_FILE"] == f"{tmp_path}/key"
    assert seen["OTHER_FILE"] == "/etc/hostname"
    environment["PGPASSWORD_FILE"] = f"{tmp_path}/missing"
    failed = subprocess.run(
        [str(script), "env"], env=environment, capture_output=True, text=True, check=False
    )
    assert failed.returncode == 1
    assert "make-secrets.sh" in failed.stderr
