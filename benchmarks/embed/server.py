"""The embedder as a process for benchmarks: `python -m benchmarks.embed.server '<settings>'`.

Reads one JSON command a line on stdin and answers each with one JSON line: {"do": "stats"},
{"do": "in_process", "count": n}, {"do": "stop"}. Keys are not checked against a database, and the
cache is off unless the settings say otherwise: a repeated text would not be work.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import numpy as np
import psutil
from pydantic import SecretStr

from benchmarks.embed.texts import short
from services.common import logs
from services.common.auth.verifier import VerifiedKey
from services.common.settings import ChassisSettings
from services.embedder.app import EmbedderApp, build
from services.embedder.front import Asked
from services.embedder.model import InputType, Kind
from services.embedder.settings import EmbedderSettings


async def any_key(_digest: bytes) -> VerifiedKey:
    """Every well-formed key is good."""
    return VerifiedKey("bench", "key", frozenset({"read"}), None)


async def serve(settings: dict[str, Any]) -> None:
    """Start, report the port, and answer commands until told to stop."""
    chassis = ChassisSettings(log_level="WARNING")
    logs.configure(chassis, "embedder")
    app = build(
        EmbedderSettings(
            **{
                "listen": "127.0.0.1:0",
                "database_dsn": SecretStr("unused"),
                "chassis": chassis,
                "cache_mb": 0,
                **settings,
            }
        ),
        any_key,
    )
    await app.start()
    say({"port": app.port})
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        if command["do"] == "stop":
            break
        if command["do"] == "in_process":
            say({"seconds": await in_process(app, command["count"])})
        else:
            say(stats(app))
    await app.stop()


def stats(app: EmbedderApp) -> dict[str, Any]:
    """Counters of the first model's worker, and what the process uses."""
    worker = app.catalogue.models[0].worker
    process = psutil.Process(os.getpid())
    cpu = process.cpu_times()
    return {
        **worker.counters(),
        "queued": worker.queued()[0],
        "rss": process.memory_info().rss,
        "cpu_s": cpu.user + cpu.system,
    }


async def in_process(app: EmbedderApp, count: int) -> float:
    """Median seconds of a query through front, scheduler and model, without gRPC."""
    served = app.catalogue.models[0]
    times = []
    for text in short(count, seed=time.monotonic_ns() % 1_000_000):
        asked = Asked(
            [text], InputType.QUERY, frozenset({Kind.DENSE}), served.model.info.max_tokens
        )
        began = time.perf_counter()
        await app.front.embed(served.model, served.worker, asked)
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def say(answer: dict[str, Any]) -> None:
    """One line to the benchmark."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
