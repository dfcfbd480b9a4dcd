"""docker-compose.yml says what the settings classes understand, and gates every start on health."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.cli import config, rpc_table
from services.local.processes import read_procfile

REPOSITORY = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if name != "postgres"}
# Read by the migrate step (command line options) and by libpq, not by a settings class.
OTHER_VARIABLES = re.compile(r"NIANLUN_(MIGRATE_DSN|TENANT_KEY|[A-Z]+_DB_PASSWORD)|PGPASSWORD")
# The settings class prefixes each process reads.
PREFIXES = {
    "embedder": ("NIANLUN_EMBEDDER_",),
    "retriever": ("NIANLUN_RETRIEVER_",),
    "retriever-worker": ("NIANLUN_RETRIEVER_",),
    "memory": ("NIANLUN_MEMORY_",),
    "memory-worker": ("NIANLUN_MEMORY_", "LLM_"),
    "orchestrator": ("NIANLUN_ORCHESTRATOR_", "LLM_"),
    "gateway": ("NIANLUN_GATEWAY_",),
}


def _variables(service: dict[str, Any]) -> dict[str, str]:
    """Variables as the process sees them: the entrypoint turns NAME_FILE into NAME."""
    found = {}
    for name, value in service.get("environment", {}).items():
        text = str(value)
        found[name.removesuffix("_FILE") if text.startswith("/run/secrets/") else name] = text
    return found


def _known() -> dict[str, config.SettingField]:
    return {field.env: field for section in config.sections() for field in section.fields}


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_one_that_a_settings_class_reads(name: str) -> None:
    unknown = [
        variable
        for variable in _variables(OURS[name])
        if variable not in _known() and not OTHER_VARIABLES.fullmatch(variable)
    ]
    assert unknown == []


@pytest.mark.parametrize("name", PREFIXES)
def test_every_required_setting_of_a_process_is_given(name: str) -> None:
    given = _variables(OURS[name])
    required = [
        field.env
        for field in _known().values()
        if field.default is None and field.env.startswith(PREFIXES[name])
    ]
    assert [variable for variable in required if variable not in given] == []


@pytest.mark.parametrize("name", PREFIXES)
def test_addresses_name_services_and_the_ports_they_listen_on(name: str) -> None:
    for variable, value in _variables(OURS[name]).items():
        if not variable.endswith("_TARGET"):
            continue
        host, _, port = value.partition(":")
        assert variable.endswith(f"_{host.upper()}_TARGET")
        listen = _variables(OURS[host])[f"NIANLUN_{host.upper()}_LISTEN"]
        assert listen == f"0.0.0.0:{port}"


def test_the_processes_are_those_of_the_procfile() -> None:
    procfile = read_procfile(REPOSITORY / "Procfile")
    for name, command in procfile.items():
        assert OURS[name]["command"][2] == command.split()[-1]
    assert set(OURS) == {*procfile, "migrate"}


def test_starts_are_gated_on_health() -> None:
    for name, service in OURS.items():
        for needed, condition in service["depends_on"].items():
            if needed == "migrate":
                assert condition == {"condition": "service_completed_successfully"}
            else:
                assert condition == {"condition": "service_healthy"}, name
                assert "healthcheck" in SERVICES[needed]
    for name in PREFIXES:
        assert "migrate" in _all_needed(name)


def _all_needed(name: str) -> set[str]:
    direct = set(SERVICES[name].get("depends_on", {}))
    return direct.union(*(_all_needed(each) for each in direct))


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_has_limits(name: str) -> None:
    limits = SERVICES[name]["deploy"]["resources"]["limits"]
    assert {"cpus", "memory", "pids"} <= set(limits)


@pytest.mark.parametrize("name", OURS)
def test_our_containers_have_no_privileges(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_only_loopback_is_published() -> None:
    for service in SERVICES.values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")


@pytest.mark.parametrize("name", SERVICES)
def test_secrets_are_files_that_exist_by_name(name: str) -> None:
    service = SERVICES[name]
    for value in map(str, service.get("environment", {}).values()):
        if value.startswith("/run/secrets/"):
            assert value.removeprefix("/run/secrets/") in service["secrets"]
        assert not re.search(r"://[^@/]+:[^@/]+@", value), "a password in a connection string"
    assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])


def test_the_secrets_script_makes_every_secret() -> None:
    script = (REPOSITORY / "deploy" / "make-secrets.sh").read_text()
    for name in COMPOSE["secrets"]:
        if name.startswith("db_") and name != "db_owner_password":
            assert name.split("_")[1] in script
        else:
            assert name in script


def test_the_image_is_built_from_what_the_repository_has() -> None:
    dockerfile = (REPOSITORY / "deploy" / "Dockerfile").read_text()
    ignored = (REPOSITORY / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    for line in re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+)$", dockerfile, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (REPOSITORY / source).exists(), source
            assert any(f"!{source}".startswith(kept) for kept in ignored if kept[0] == "!"), source


def test_the_configuration_reference_is_current() -> None:
    written = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == config.render(), "run `make docs-config`"


def test_the_table_of_rpcs_in_the_readme_is_current() -> None:
    written = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert written == rpc_table.merged(written), "run `make docs-config`"
