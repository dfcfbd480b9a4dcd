"""The monitoring port: metrics for Prometheus, readiness for probes."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry, Counter

from services.common.errors import StartupError
from services.common.monitor import MonitorServer


@dataclass
class State:
    ready: bool = True
    reasons: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def monitor(state: State) -> Iterator[MonitorServer]:
    registry = CollectorRegistry()
    Counter("seen", "Seen.", registry=registry).inc(3)
    server = MonitorServer("127.0.0.1", 0, registry, state)
    yield server
    server.close()


def _get(monitor: MonitorServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{monitor.port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_are_served(monitor: MonitorServer) -> None:
    status, text = _get(monitor, "/metrics")
    assert status == 200
    assert "seen_total 3.0" in text


def test_health_follows_the_checks(monitor: MonitorServer, state: State) -> None:
    assert _get(monitor, "/healthz") == (200, "ready\n")
    state.ready, state.reasons = False, {"worker": "the worker has ended"}
    assert _get(monitor, "/healthz") == (503, "worker: the worker has ended\n")
    state.reasons = {}  # drains: nothing is wrong, and still no new work
    assert _get(monitor, "/healthz") == (503, "ends\n")


def test_a_taken_port_is_said_at_start(state: State) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match="NIANLUN_METRICS_PORT"):
            MonitorServer("127.0.0.1", port, CollectorRegistry(), state)


def test_the_port_is_free_again_after_close(state: State) -> None:
    first = MonitorServer("127.0.0.1", 0, CollectorRegistry(), state)
    first.close()
    second = MonitorServer("127.0.0.1", first.port, CollectorRegistry(), state)
    second.close()
