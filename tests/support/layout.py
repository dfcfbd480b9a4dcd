"""The file systems that deploy/Dockerfile makes, built without a container engine.

Every instruction of a target's stages is carried out in a folder of its own: RUN by a shell, COPY
from the build context or from another stage, ENV and WORKDIR as they say. Absolute paths of the
image lead into the folder. What only a container has (a user of its own, a root file system that
cannot be written) is approached: processes run as another user, who owns nothing but a /tmp.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.dockerfile import REPOSITORY, Instruction, Stage, chain, parse

USER = 10001
_HEADER = """\
# Versions that the images are built with: a build of today and one of tomorrow are the same.
# `make lock-images` writes this file from what pyproject.toml allows.
"""
_ROOTS = re.compile(r"(?<![\w./-])/(opt|src|models|run/secrets|usr/local/bin/nianlun-[a-z]+)\b")


@dataclass
class Layout:
    """Images as folders under ``root``, one for each stage that was asked for."""

    root: Path
    stages: dict[str, Stage] = field(default_factory=parse)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._done: dict[str, Path] = {}
        self.context = self.root / "context"
        _copy_context(self.context)
        self._python = _copy_python(self.root / "python")

    @property
    def libraries(self) -> str:
        """Where the interpreter's shared library lies, if it has one; for LD_LIBRARY_PATH."""
        return str(self._python.parent / "lib")

    def build(self, target: str) -> Path:
        """The folder of a target; the stages it copies from are built first."""
        if target not in self._done:
            folder = self._done[target] = self.root / target
            folder.mkdir()
            environment = {
                "PATH": f"{self._python}:/usr/bin:/bin",
                "LD_LIBRARY_PATH": self.libraries,
                "HOME": os.environ["HOME"],
            }
            at = folder
            for stage in chain(self.stages, target):
                for item in stage.instructions:
                    at = self._carry_out(item, folder, at, environment)
        return self._done[target]

    def inside(self, folder: Path, text: str) -> str:
        """Absolute paths of the image in ``text`` as paths of this machine."""
        return _ROOTS.sub(lambda match: f"{folder}{match[0]}", text)

    def _carry_out(
        self, item: Instruction, folder: Path, at: Path, environment: dict[str, str]
    ) -> Path:
        if item.name == "ENV":
            for word in shlex.split(item.text):
                key, _, value = word.partition("=")
                value = value.replace("$PATH", environment["PATH"])
                environment[key] = self.inside(folder, value)
        elif item.name == "WORKDIR":
            at = folder / item.text.lstrip("/")
            at.mkdir(parents=True, exist_ok=True)
        elif item.name == "COPY":
            self._copy(item.text, folder, at)
        elif item.name == "RUN":
            self._run(item.text, folder, at, environment)
        return at

    def _copy(self, text: str, folder: Path, at: Path) -> None:
        options = [word for word in text.split() if word.startswith("--")]
        *sources, target = [word for word in text.split() if not word.startswith("--")]
        destination = (folder if target.startswith("/") else at) / target.lstrip("/")
        origin = self.context
        for option in options:
            if option.startswith("--from="):
                origin = self.build(option.removeprefix("--from="))
        many = target.endswith("/")
        for source in sources:
            found = origin / source.lstrip("/")
            goal = destination / found.name if many else destination
            goal.parent.mkdir(parents=True, exist_ok=True)
            if found.is_file():
                goal.write_bytes(self.inside(folder, found.read_text("utf-8")).encode())
                goal.chmod(0o755 if "--chmod=755" in options else 0o644)
            elif origin is self.context or not (found / "pyvenv.cfg").exists():
                shutil.copytree(found, goal, dirs_exist_ok=True)
            else:
                # The paths inside a virtual environment are those it was made at.
                goal.symlink_to(found)

    def _run(self, text: str, folder: Path, at: Path, environment: dict[str, str]) -> None:
        if text.startswith("useradd"):
            return
        kept = {k: v for k, v in environment.items() if k != "PIP_NO_CACHE_DIR"}
        command = self.inside(folder, text)
        if os.geteuid() != 0:
            command = re.sub(r"--owner=\d+", "", command)
        done = subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=at,
            env=kept,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        self.log.append(f"{text}\n{done.stdout}{done.stderr}")
        if done.returncode != 0:
            raise AssertionError(
                f"RUN {text}\nended with {done.returncode}:\n{done.stderr[-3000:]}"
            )


def as_user() -> dict[str, int | list[int]]:
    """Arguments of subprocess that drop root where there is root to drop."""
    return {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}


def _copy_python(target: Path) -> Path:
    """This interpreter as that of the base image, where any user may run it; its bin folder."""
    base = Path(sys.base_prefix)
    version = f"python3.{sys.version_info.minor}"
    ignored = shutil.ignore_patterns("test", "site-packages", "__pycache__", "*.a")
    shutil.copytree(base / "lib" / version, target / "lib" / version, ignore=ignored)
    for library in (base / "lib").glob("libpython*"):
        shutil.copy2(library, target / "lib" / library.name)
    (target / "lib" / version / "site-packages").mkdir()
    (target / "bin").mkdir()
    shutil.copy2((base / "bin" / version).resolve(), target / "bin" / version)
    for name in ("python", "python3"):
        (target / "bin" / name).symlink_to(version)
    return target / "bin"


def _copy_context(target: Path) -> None:
    """What Docker would be sent: files git knows, less what .dockerignore leaves out."""
    rules = [
        line
        for line in (REPOSITORY / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    kept = tuple(line[1:] for line in rules if line.startswith("!"))
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        source = REPOSITORY / name
        if any(name == k or name.startswith(f"{k}/") for k in kept) and source.is_file():
            goal = target / name
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, goal)


def lock() -> None:
    """Write deploy/constraints.txt: what the images' packages resolve to today."""
    constraints = REPOSITORY / "deploy" / "constraints.txt"
    with tempfile.TemporaryDirectory(prefix="nl-lock-", dir="/tmp") as folder:
        layout = Layout(Path(folder))
        (layout.context / "deploy" / "constraints.txt").write_text("")
        found: set[str] = set()
        for target in ("packages-light", "packages-embedder", "packages-mcp"):
            pip = [f"{layout.build(target)}/opt/venv/bin/python", "-m", "pip", "freeze", "--local"]
            done = subprocess.run(pip, capture_output=True, text=True, check=True)
            found |= {line for line in done.stdout.splitlines() if "==" in line}
    lines = sorted(line for line in found if not line.startswith("nianlun"))
    constraints.write_text(_HEADER + "\n".join(lines) + "\n")
    sys.stdout.write(f"{len(lines)} packages\n")


if __name__ == "__main__":
    lock()
