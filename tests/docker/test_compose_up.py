"""docker-compose.yml as a person would use it, and its overlays for replicas and observability."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from nianlun import Client
from services.local.processes import read_procfile
from tests.docker.conftest import REPOSITORY, System, composed
from tests.support.drive import chat, drive, recall_over_mcp, remember

pytestmark = [pytest.mark.docker, pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

PROCESSES = (*read_procfile(REPOSITORY / "Procfile"), "mcp")


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with composed() as running:
        yield running


async def test_every_service_does_its_part(system: System) -> None:
    user = await asyncio.to_thread(drive, system.targets, system.key, system.gateway)
    await recall_over_mcp(system.mcp, system.key, user)


def test_every_process_is_healthy_and_nobody_special(system: System) -> None:
    states = [json.loads(line) for line in system.run("ps", "--format", "json").splitlines()]
    health = {state["Service"]: state["Health"] for state in states}
    assert {name: health[name] for name in PROCESSES} == dict.fromkeys(PROCESSES, "healthy")
    for name in PROCESSES:
        assert system.inside(name, "id", "-u").strip() == "10001"
        written = system.inside(name, "sh", "-c", "touch /opt/x 2>/dev/null && echo yes || echo no")
        assert written.strip() == "no", name


def test_what_was_written_survives_a_restart_of_everything(system: System) -> None:
    user = "u-restart"
    with Client(system.targets, key=system.key, timeout_s=60) as client:
        position = remember(client, user)
    system.run("restart", "--timeout", "30")
    system.run("up", "--wait", "--detach")
    with Client(system.targets, key=system.key, timeout_s=60) as client:
        loaded = client.load_memory(user, "我叫什么？", session_id="s2", at_least=position)
    assert "林晓雨" in loaded.rendered


def test_the_migration_can_be_run_again(system: System) -> None:
    assert "the database is ready" in system.run("run", "--rm", "migrate")


def test_replicas_share_the_calls() -> None:
    with composed("replicas") as system:
        for number in range(40):
            status, body = chat(system.gateway, system.key, "Who am I?", f"u-{number}")
            assert status == 200, body
        for name in ("memory", "retriever", "orchestrator"):
            served = [_calls(system.inside(name, *_METRICS, index=index)) for index in (1, 2)]
            assert min(served) > 0.2 * sum(served) > 0, f"{name}: {served}"


_METRICS = (
    "python",
    "-c",
    "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9464/metrics').read().decode())",
)


def _calls(metrics: str) -> float:
    return sum(
        float(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        if line.startswith("rpc_server_call_duration_seconds_count") and "grpc.health" not in line
    )


def test_metrics_traces_and_the_dashboard_arrive() -> None:
    with composed("observability") as system:
        drive(system.targets, system.key, system.gateway)
        _until(lambda: {t["health"] for t in _targets()} == {"up"} and len(_targets()) == 7)
        _until(lambda: bool(_json("http://127.0.0.1:16686/api/services")["data"]))
        secret = (REPOSITORY / "deploy" / "secrets" / "grafana_password").read_text()
        found = _json("http://127.0.0.1:3000/api/dashboards/uid/nianlun", ("admin", secret))
        assert found["dashboard"]["title"] == "Nianlun"
        rules = _json("http://127.0.0.1:9090/api/v1/rules")["data"]["groups"][0]["rules"]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}


def _targets() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _json("http://127.0.0.1:9090/api/v1/targets")["data"][
        "activeTargets"
    ]
    return found


def _json(url: str, user: tuple[str, str] | None = None) -> Any:
    passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
    if user is not None:
        passwords.add_password(None, url, *user, is_authenticated=True)
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
    with opener.open(url, timeout=10) as answer:
        return json.load(answer)


def _until(done: Any, within_s: float = 120.0) -> None:
    give_up = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(2)
