"""mem0 and LangGraph's PostgresStore beside ours: the same PostgreSQL server, the same notes, the
same embedding, in the same run. A peer that cannot be installed is named as such, never
invented."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks.memory.rig import ROOT
from benchmarks.report import Report
from services.local.postgres import EmbeddedPostgres

VENV: Final = ROOT / ".venv-peers-memory"
NAMES: Final = ("mem0", "langgraph")


def run(
    report: Report,
    postgres: EmbeddedPostgres,
    rows: list[tuple[str, str]],
    adds: list[tuple[str, str]],
    searches: list[tuple[str, str]],
    callers: int,
) -> None:
    """Both peers, each over a database of its own. `rows`, `adds`: (user, note); `searches`: (user,
    question)."""
    python = VENV / "bin" / "python"
    for name in NAMES:
        if not python.exists():
            report.details[f"peer_{name}"] = {"skipped": f"{VENV.name} could not be made"}
            continue
        task = {
            "peer": name, "rows": rows, "adds": adds, "searches": searches, "callers": callers,
            "dsn": _database(postgres, f"peer_{name}"),
            "seed_limit_s": 30 if os.environ.get("QUICK") == "1" else 150,
        }  # fmt: skip
        found = _run(python, task)
        report.details[f"peer_{name}"] = found
        for key in ("add_per_s", "add_p95_ms", "search_p50_ms", "search_p95_ms"):
            if key in found:
                higher = key == "add_per_s"
                report.figure(f"peer_{name}_{key}", found[key], higher=higher)


def _run(python: Path, task: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [str(python), "-m", "benchmarks.memory.peer_run"],
        input=json.dumps(task), capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode:
        return {"failed": done.stderr.strip()[-600:]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _database(postgres: EmbeddedPostgres, name: str) -> str:
    """A fresh database of that name; its DSN."""
    with psycopg.connect(postgres.dsn(), autocommit=True) as conn:
        conn.execute(f'CREATE DATABASE "{name}"')
    dsn = postgres.dsn(database=name)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return dsn


def sample(
    rows: list[tuple[str, str]], questions: list[str], count: int, seed: int
) -> list[tuple[str, str]]:
    """`count` (user, question) pairs over the users of `rows`."""
    rng = random.Random(seed)
    users = sorted({user for user, _ in rows})
    return [(rng.choice(users), rng.choice(questions)) for _ in range(count)]
