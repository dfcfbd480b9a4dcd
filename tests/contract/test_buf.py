"""The contracts pass buf: lint rules STANDARD and COMMENTS, and no breaking change against main."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUF = Path(sys.executable).with_name("buf")


def _run(*args: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(args, cwd=ROOT, capture_output=True, check=False)


def test_lint() -> None:
    done = _run(str(BUF), "lint")
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_nothing_breaks_against_main(tmp_path: Path) -> None:
    for branch in ("main", "origin/main"):
        old = _run("git", "archive", branch, "buf.yaml", "protos/nianlun")
        if old.returncode == 0:
            break
    else:
        pytest.skip("no contracts on branch main yet: nothing to compare with")
    with tarfile.open(fileobj=io.BytesIO(old.stdout)) as archive:
        archive.extractall(tmp_path, filter="data")
    done = _run(str(BUF), "breaking", "--against", str(tmp_path))
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
