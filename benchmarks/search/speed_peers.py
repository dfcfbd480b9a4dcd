"""The same queries by other systems, in the same run. A peer that is not installed is named as
such, never invented."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.speed_data import Corpus, Question

VENV = Path(".venv-peers")
NAMES = ("rank-bm25", "chroma", "langchain ensemble")
MAX_CHUNKS = 100_000
_LIMIT_S = 900


def run(of: Corpus, asked: Sequence[Question]) -> dict[str, Any]:
    """Peer -> {"p50": ms, "p95": ms, "build_s": s} or {"skipped": why}.

    They run in a process and a virtual environment of their own: their packages would change ours.
    """
    if len(of) > MAX_CHUNKS:
        return _skipped(f"more than {MAX_CHUNKS:,} chunks take too long")
    python = VENV / "bin" / "python"
    program = Path(__file__).with_name("peers_main.py")
    with tempfile.TemporaryDirectory(prefix="nl-peers-") as name:
        folder = Path(name)
        np.save(folder / "vectors.npy", of.vectors)
        with (folder / "texts.txt").open("w", encoding="utf-8") as file:
            file.writelines(f"{of.text(row)}\n" for row in range(len(of)))
        questions = [[q.text, q.vector.tolist()] for q in asked]
        (folder / "questions.json").write_text(json.dumps(questions))
        try:
            done = subprocess.run(
                [str(python if python.exists() else sys.executable), str(program), name],
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                env={**os.environ, "PYTHONPATH": ""},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return _skipped(f"not done within {_LIMIT_S} s")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return _skipped(f"failed: {last[:200]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _skipped(why: str) -> dict[str, Any]:
    return {name: {"skipped": why} for name in NAMES}
