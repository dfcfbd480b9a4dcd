"""Fault run: turns from 8 callers that retry with the same request_id, while worker, memory service
and PostgreSQL are killed (SIGKILL) at random.

Afterwards: every acknowledged turn is there once, each was digested once, the queue drains,
nothing is stuck.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import psycopg

from benchmarks.memory.rig import Rig, rig
from benchmarks.report import Report
from nianlun.memory.v1 import memory_pb2 as pb
from nianlun.memory.v1 import memory_pb2_grpc

CALLERS = 8
USERS = 40
_AGAIN = (
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.INTERNAL,
    grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN,
)  # fmt: skip


@dataclass
class Log:
    """What was acknowledged, and how rough it was."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    """Request id -> turn id."""
    retries: int = 0
    kills: dict[str, int] = field(default_factory=dict)


def _request(number: int) -> pb.AppendTurnRequest:
    user = f"user-{number % USERS}"
    messages = [
        pb.Message(role=pb.ROLE_USER, text=f"我喜欢第{number}号茶，记得它的产地是云南。"),
        pb.Message(role=pb.ROLE_ASSISTANT, text="好的。"),
    ]
    return pb.AppendTurnRequest(
        request_id=str(uuid.UUID(int=number + 1)), user_id=user, session_id=f"s{number % 3}",
        messages=messages,
    )  # fmt: skip


async def _caller(bench: Rig, log: Log, numbers: Any, pause_s: float) -> None:
    channel = grpc.aio.insecure_channel(bench.target, (("grpc.use_local_subchannel_pool", 1),))
    stub: Any = memory_pb2_grpc.MemoryServiceStub(channel)
    for number in numbers:
        request = _request(number)
        while request.request_id not in log.acknowledged:
            try:
                reply = await stub.AppendTurn(
                    request, metadata=bench.metadata, timeout=5, wait_for_ready=True
                )
            except grpc.aio.AioRpcError as error:
                if error.code() not in _AGAIN:
                    raise
                log.retries += 1
                await asyncio.sleep(0.1)
            else:
                log.acknowledged[request.request_id] = reply.turn_id
        await asyncio.sleep(pause_s)
    await channel.close()


async def _killer(bench: Rig, log: Log, each: int, gap_s: float, done: asyncio.Event) -> None:
    victims = ["memory", "worker", "postgres"] * each
    random.Random(11).shuffle(victims)
    for victim in victims:
        await asyncio.sleep(gap_s * random.uniform(0.5, 1.5))
        log.kills[victim] = log.kills.get(victim, 0) + 1
        if victim == "postgres":
            bench.kill_postgres()
            await asyncio.sleep(0.5)
            # In this thread: the server is tied to the life of the thread that started it.
            bench.restart_postgres()
        else:
            bench.kill(victim)
            await asyncio.sleep(random.uniform(0.0, 1.0))
            bench.spawn(victim)
    done.set()


async def _storm(bench: Rig, log: Log, turns: int, each: int) -> None:
    done = asyncio.Event()
    gap_s = 2.5
    # The turns are spread over the whole time of the kills.
    pause_s = each * 3 * gap_s * 1.2 * CALLERS / turns
    numbers = iter(range(turns))
    callers = [_caller(bench, log, numbers, pause_s) for _ in range(CALLERS)]
    await asyncio.gather(*callers, _killer(bench, log, each, gap_s, done))


def _drained(bench: Rig, seconds: float) -> bool:
    """Whether every turn is digested and no job is open within `seconds`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with psycopg.connect(bench.postgres.dsn(), autocommit=True) as conn:
            row = conn.execute(
                "SELECT (SELECT count(*) FROM memory.turns WHERE digest_state <> 'done')"
                " + (SELECT count(*) FROM memory.jobs WHERE end_time IS NULL)"
                " + (SELECT count(*) FROM memory_queue.procrastinate_jobs)"
            ).fetchone()
        if row is not None and row[0] == 0:
            return True
        time.sleep(1)
    return False


def _check(bench: Rig, log: Log, report: Report) -> None:
    with psycopg.connect(bench.postgres.dsn(), autocommit=True) as conn:
        stored = {str(i) for (i,) in conn.execute("SELECT turn_id FROM memory.turns").fetchall()}
        doubled = conn.execute(
            "SELECT count(*) FROM (SELECT messages FROM memory.turns GROUP BY user_id, messages"
            " HAVING count(*) > 1) AS d"
        ).fetchone()
        noted = conn.execute(
            "SELECT count(*), count(DISTINCT turn_id) FROM memory.episode_sources"
        ).fetchone()
        failed = conn.execute("SELECT count(*) FROM memory.jobs WHERE state = 'failed'").fetchone()
        sources = conn.execute("SELECT count(DISTINCT turn_id) FROM memory.fact_sources").fetchone()
    acknowledged = set(log.acknowledged.values())
    if not (doubled and noted and failed and sources):
        raise RuntimeError("a count gave no row")
    figures = (
        ("chaos_acknowledged_lost", len(acknowledged - stored)),
        ("chaos_turns_doubled", doubled[0]),
        ("chaos_undigested", len(stored) - sources[0]),
        ("chaos_digested_twice", noted[0] - noted[1]),
        ("chaos_jobs_failed", failed[0]),
    )
    for name, value in figures:
        report.figure(name, value, 0.0, higher=False)
    report.details["chaos"] = {
        "turns": len(stored), "acknowledged": len(acknowledged), "retries": log.retries,
        "kills": log.kills,
    }  # fmt: skip


def run(report: Report) -> None:
    """The storm, then the count."""
    quick = os.environ.get("QUICK") == "1"
    turns, each = (400, 3) if quick else (2_000, 10)
    log = Log()
    with rig(
        NIANLUN_JOBS_LEASE_S="6", NIANLUN_JOBS_HEARTBEAT_S="1", NIANLUN_JOBS_STALLED_CHECK_S="2",
        NIANLUN_JOBS_POLL_S="0.5",
    ) as bench:  # fmt: skip
        bench.spawn("memory")
        bench.spawn("worker")
        bench.wait_serving()
        started = time.perf_counter()
        asyncio.run(_storm(bench, log, turns, each))
        report.details["storm_s"] = round(time.perf_counter() - started, 1)
        drained = _drained(bench, 240)
        report.figure("chaos_drained", float(drained), 1.0)
        _check(bench, log, report)
        if not drained:
            for name in ("memory", "worker"):
                print(f"-- {name}", (bench.logs / f"{name}.log").read_text()[-3_000:])


def main() -> int:
    """Run alone; exit code 1 when something was lost, doubled or stuck."""
    report = Report("chaos-memory", "benchmarks.chaos_memory")
    run(report)
    report.write()
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
