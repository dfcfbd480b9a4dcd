"""docker-compose.yml and its overlays say what the settings classes understand, and gate every
start on health. Every check runs on the base file and on each overlay merged into it.
"""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from nianlun_mcp import settings as mcp
from services.cli import config, rpc_table
from services.embedder.settings import EmbedderSettings
from services.local.processes import read_procfile
from tests.support import composefile, dockerfile

REPOSITORY = composefile.REPOSITORY
STAGES = dockerfile.parse()
FILES = [(), *[(overlay,) for overlay in composefile.OVERLAYS]]
# Read by the migrate step (command line options) and by libpq, not by a settings class.
OTHER_VARIABLES = re.compile(
    r"NIANLUN_(MIGRATE_DSN|TENANT_KEY|[A-Z]+_DB_PASSWORD)|PGPASSWORD|HF_HOME"
)
# The settings class prefixes each process reads.
PREFIXES = {
    "embedder": ("NIANLUN_EMBEDDER_",),
    "retriever": ("NIANLUN_RETRIEVER_",),
    "retriever-worker": ("NIANLUN_RETRIEVER_",),
    "memory": ("NIANLUN_MEMORY_",),
    "memory-worker": ("NIANLUN_MEMORY_", "LLM_"),
    "orchestrator": ("NIANLUN_ORCHESTRATOR_", "LLM_"),
    "gateway": ("NIANLUN_GATEWAY_",),
    "mcp": ("NIANLUN_MCP_",),
}
# The MCP server is no service: its variables are those of its command.
MCP_VARIABLES = {*mcp.Variable, *mcp.ADDRESSES}

Compose = dict[str, Any]


@pytest.fixture(params=FILES, ids=lambda overlays: "+".join(("base", *overlays)))
def compose(request: pytest.FixtureRequest) -> Compose:
    return composefile.load(*request.param)


def _ours(compose: Compose) -> dict[str, Compose]:
    """The services whose image is built from deploy/Dockerfile."""
    return {
        name: service
        for name, service in compose["services"].items()
        if service.get("build", {}).get("dockerfile") == "deploy/Dockerfile"
    }


def _image(service: Compose) -> dockerfile.Image:
    return _target(service["build"]["target"])


@cache
def _target(name: str) -> dockerfile.Image:
    return dockerfile.image(STAGES, name)


def _variables(service: Compose) -> dict[str, str]:
    """Variables as the process sees them: the entrypoint turns NAME_FILE into NAME."""
    found = dict(_image(service).environment)
    for name, value in service.get("environment", {}).items():
        text = str(value)
        found[name.removesuffix("_FILE") if text.startswith("/run/secrets/") else name] = text
    return found


@cache
def _known() -> dict[str, config.SettingField]:
    return {field.env: field for section in config.sections() for field in section.fields}


def test_the_files_keep_to_the_compose_specification(compose: Compose) -> None:
    PyCompose.from_yaml(yaml.safe_dump(compose))


def test_a_file_that_breaks_the_specification_is_refused() -> None:
    broken = composefile.load()
    broken["services"]["gateway"]["restart"] = "sometimes"
    with pytest.raises(ValueError, match=r"gateway\.restart"):
        PyCompose.from_yaml(yaml.safe_dump(broken))


def test_every_variable_is_one_that_a_settings_class_reads(compose: Compose) -> None:
    plain = re.compile(r"PATH|PYTHON[A-Z]+|HF_HUB_OFFLINE")
    unknown = [
        f"{name}: {variable}"
        for name, service in _ours(compose).items()
        for variable in _variables(service)
        if variable not in (MCP_VARIABLES if name == "mcp" else _known())
        and not OTHER_VARIABLES.fullmatch(variable)
        and not plain.fullmatch(variable)
    ]
    assert unknown == []


def test_every_required_setting_of_a_process_is_given(compose: Compose) -> None:
    missing = [
        f"{name}: {field.env}"
        for name, prefixes in PREFIXES.items()
        for field in _known().values()
        if field.default is None
        and field.env.startswith(prefixes)
        and field.env not in _variables(compose["services"][name])
    ]
    assert missing == []


def test_addresses_name_services_and_the_ports_they_listen_on(compose: Compose) -> None:
    for name in PREFIXES:
        for variable, value in _variables(compose["services"][name]).items():
            if not variable.endswith("_TARGET"):
                continue
            host, _, port = value.partition(":")
            assert variable.endswith(f"_{host.upper()}_TARGET")
            listen = _variables(compose["services"][host])[f"NIANLUN_{host.upper()}_LISTEN"]
            assert listen == f"0.0.0.0:{port}"


def test_addresses_of_other_containers_are_in_the_same_file(compose: Compose) -> None:
    for name, service in _ours(compose).items():
        for value in map(str, service.get("environment", {}).values()):
            for host in re.findall(r"(?:https?://|@)([a-z][a-z0-9-]*)(?=[:/])", value):
                assert host in compose["services"], f"{name} talks to {host}"
                assert set(service["networks"]) & set(compose["services"][host]["networks"]), host


def test_model_lists_are_what_the_embedder_reads(compose: Compose) -> None:
    given = _variables(compose["services"]["embedder"])
    values = {
        name: json.loads(given[f"NIANLUN_EMBEDDER_{name.upper()}"])
        for name in ("models", "rerankers")
        if f"NIANLUN_EMBEDDER_{name.upper()}" in given
    }
    settings = EmbedderSettings(database_dsn="postgresql://x", **values)
    assert settings.models
    assert settings.rerankers


def test_the_processes_are_those_of_the_procfile() -> None:
    ours = _ours(composefile.load())
    procfile = read_procfile(REPOSITORY / "Procfile")
    for name, command in procfile.items():
        assert ours[name]["build"]["target"] == name
        assert _image(ours[name]).command[-1] == command.split()[-1]
        assert "command" not in ours[name]
    assert set(ours) == {*procfile, "migrate", "mcp"}


def test_the_mcp_server_is_there_for_who_asks_for_it_and_holds_no_key(compose: Compose) -> None:
    profiles = {name: service.get("profiles", []) for name, service in _ours(compose).items()}
    assert {name for name, given in profiles.items() if given} == {"mcp"}
    server = compose["services"]["mcp"]
    assert server["profiles"] == ["mcp"]
    assert "secrets" not in server
    assert _image(server).command == ("python", "-m", "nianlun_mcp")
    given = _variables(server)
    assert not {mcp.Variable.API_KEY, mcp.Variable.KEY, "NIANLUN_SERVICE_KEY"} & set(given)
    # Beyond loopback it does not start without the names it is called by.
    port = given[mcp.Variable.LISTEN].rpartition(":")[2]
    assert given[mcp.Variable.HOSTS] == f"mcp:{port}"
    # No tool embeds; all other services are used.
    used = {name for name in given if name.endswith("_TARGET")}
    assert used == {*mcp.ADDRESSES} - {"NIANLUN_EMBEDDER_TARGET"}


def test_every_process_has_a_health_check_of_its_own_port() -> None:
    for name, service in _ours(composefile.load()).items():
        image = _image(service)
        if name == "migrate":
            continue
        checked_by = "nianlun_mcp.health" if name == "mcp" else "services.cli.health"
        assert image.health[:3] == ("python", "-m", checked_by)
        port = int(re.sub(r"^.*?:(\d+)(/.*)?$", r"\1", image.health[3].removeprefix("http://")))
        assert port in image.ports
        listens = [v for k, v in image.environment.items() if k.endswith("_LISTEN")]
        assert listens in ([f"0.0.0.0:{port}"], [])
        if not listens:
            assert image.environment["NIANLUN_METRICS_PORT"] == str(port)


def test_starts_are_gated_on_health(compose: Compose) -> None:
    services = compose["services"]

    def needed(name: str) -> set[str]:
        direct = set(services[name].get("depends_on", {}))
        return direct.union(*(needed(each) for each in direct))

    for service in _ours(compose).values():
        for other, condition in service["depends_on"].items():
            if services[other].get("restart") == "no":
                assert condition == {"condition": "service_completed_successfully"}
            else:
                assert condition == {"condition": "service_healthy"}
                built = services[other].get("build", {}).get("target")
                assert "healthcheck" in services[other] or (
                    built and dockerfile.image(STAGES, built).health
                )
    for name in PREFIXES:
        assert {"migrate", "postgres"} <= needed(name)


def test_every_container_has_limits(compose: Compose) -> None:
    for name, service in compose["services"].items():
        limits = service["deploy"]["resources"]["limits"]
        assert {"cpus", "memory", "pids"} <= set(limits), name


def test_our_containers_have_no_privileges(compose: Compose) -> None:
    for name, service in _ours(compose).items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert _image(service).user == "10001", name


def test_only_loopback_is_published_and_each_port_once(compose: Compose) -> None:
    published = []
    for name, service in compose["services"].items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name
            published.append(port)
        if service["deploy"].get("replicas", 1) > 1:
            assert not service.get("ports"), f"{name}: two containers cannot share a port"
    assert len(published) == len(set(published))


def test_secrets_are_files_that_exist_by_name(compose: Compose) -> None:
    for service in compose["services"].values():
        for value in map(str, service.get("environment", {}).values()):
            if value.startswith("/run/secrets/"):
                assert value.removeprefix("/run/secrets/") in service["secrets"]
            assert not re.search(r"://[^@/]+:[^@/]+@", value), "a password in a connection string"
        assert set(service.get("secrets", [])) <= set(compose["secrets"])


def test_only_the_index_builder_and_the_migration_hold_more_than_their_own_role() -> None:
    holders: dict[str, set[str]] = {}
    for name, service in composefile.load()["services"].items():
        for secret in service.get("secrets", []):
            holders.setdefault(secret, set()).add(name)
    assert holders["db_owner_password"] == {"postgres", "migrate"}
    assert holders["maintenance_dsn"] == {"retriever-worker"}
    assert holders["tenant_key"] == {"migrate"}


def test_mounted_files_are_in_the_repository(compose: Compose) -> None:
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (REPOSITORY / source).exists(), source
            else:
                assert source in compose["volumes"]


def test_the_secrets_script_makes_every_secret_once(tmp_path: Path) -> None:
    script = [str(REPOSITORY / "deploy" / "make-secrets.sh"), str(tmp_path / "secrets")]
    subprocess.run(script, check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    wanted = {name for files in FILES for name in composefile.load(*files)["secrets"]}
    assert set(made) == wanted
    assert made["db_maintenance_password"] in made["maintenance_dsn"]
    assert len(set(made.values())) == len(made)
    again = subprocess.run(script, check=True, capture_output=True, text=True)
    assert "made" not in again.stdout
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == made


def test_the_configuration_reference_is_current() -> None:
    written = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == config.render(), "run `make docs-config`"


def test_the_table_of_rpcs_in_the_readme_is_current() -> None:
    written = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert written == rpc_table.merged(written), "run `make docs-config`"
