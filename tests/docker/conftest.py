"""The images, built and run by Docker. Without a daemon these tests are skipped, with the reason;
REQUIRE_DOCKER=1 makes that a failure.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from testcontainers.compose import DockerCompose

from services.local.home import GRPC_SERVICES

REPOSITORY = Path(__file__).resolve().parents[2]
PORTS = {"embedder": 50051, "retriever": 50052, "memory": 50053, "orchestrator": 50054}


@dataclass(frozen=True)
class System:
    """A running composition."""

    compose: DockerCompose
    key: str

    @property
    def targets(self) -> dict[str, str]:
        """host:port of each gRPC service, as published."""
        return {name: f"127.0.0.1:{PORTS[name]}" for name in GRPC_SERVICES}

    @property
    def mcp(self) -> str:
        """The MCP server's address."""
        return "http://127.0.0.1:8090/mcp"

    @property
    def gateway(self) -> str:
        """Base URL over HTTP."""
        return "http://127.0.0.1:8080"

    def run(self, *words: str) -> str:
        """A docker compose command on these files; its output."""
        command = [*self.compose.compose_command_property, *words]
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-3000:]}"
        return done.stdout

    def inside(self, service: str, *words: str, index: int = 1) -> str:
        """A command in a container of a service; its output."""
        return self.run("exec", "--no-TTY", "--index", str(index), service, *words)


def _why_not() -> str:
    """What is missing for Docker; empty where nothing is."""
    try:
        import docker

        client = docker.from_env(timeout=5)
        client.ping()
        client.close()
    except ImportError:
        return "the docker package is not installed"
    except docker.errors.DockerException as error:
        return f"no Docker daemon answers: {error}"
    done = subprocess.run(
        ["docker", "compose", "version"], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else f"docker has no compose: {done.stderr.strip()}"


@pytest.fixture(scope="session", autouse=True)
def daemon() -> None:
    """Skips everything here where Docker is missing."""
    why = _why_not()
    if why and os.environ.get("REQUIRE_DOCKER") == "1":
        pytest.exit(f"REQUIRE_DOCKER=1, but {why}", returncode=1)
    if why:
        pytest.skip(why)


@contextmanager
def composed(*overlays: str) -> Iterator[System]:
    """The base file and overlays, built, up and healthy; gone with its volumes afterwards."""
    subprocess.run([str(REPOSITORY / "deploy" / "make-secrets.sh")], check=True)
    files = ["docker-compose.yml", *(f"deploy/compose/{name}.yml" for name in overlays)]
    os.environ["COMPOSE_PROJECT_NAME"] = "nianlun-test"
    compose = DockerCompose(
        REPOSITORY, compose_file_name=files, build=True, wait=True, profiles=["mcp"]
    )
    key = (REPOSITORY / "deploy" / "secrets" / "tenant_key").read_text()
    try:
        with compose:
            yield System(compose, key)
    finally:
        del os.environ["COMPOSE_PROJECT_NAME"]
