"""The Kubernetes chart, rendered by Helm: valid objects, variables that settings classes read,
probes of ports that are listened on, doors between those who talk to each other and nobody else.
"""

from __future__ import annotations

import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from nianlun_mcp import settings as mcp
from services.cli import config
from tests.support import composefile, dockerfile, helm

KUBERNETES = ("1.29", "1.37")
STAGES = dockerfile.parse()
COMPOSE = composefile.load()
PROCESSES = tuple(
    yaml.safe_load((helm.CHART / "values.yaml").read_text(encoding="utf-8"))["processes"]
)
OPTIONAL = {"mcp"}
HTTP = {"gateway", "mcp"}
SPECIAL: dict[str, dict[str, Any]] = {
    "embedder": {"gpu": True},
    "mcp": {"enabled": True, "hosts": ["mcp.example.com"]},
}
FULL: dict[str, Any] = {
    "image": {"registry": "registry.example.com/team", "tag": "1.2.3"},
    "llm": {"baseUrl": "https://models.example.com/v1", "model": "m", "egressCidr": "10.0.0.0/8"},
    "otlpEndpoint": "http://otel-collector.observability:4317",
    "env": {"memory": {"NIANLUN_MEMORY_POOL_MAX": 16}},
    "processes": {
        name: {"autoscaling": {"enabled": True}, **SPECIAL.get(name, {})} for name in PROCESSES
    },
    "networkPolicy": {"clientNamespaces": ["agents"], "monitoringNamespaces": ["observability"]},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls"},
    "nodeSelector": {"pool": "memory"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
}

Object = dict[str, Any]


@pytest.fixture(scope="session")
def plain() -> list[Object]:
    return helm.render({})


@pytest.fixture(scope="session")
def full() -> list[Object]:
    return helm.render(FULL)


@pytest.fixture(params=["plain", "full"])
def objects(request: pytest.FixtureRequest) -> list[Object]:
    found: list[Object] = request.getfixturevalue(request.param)
    return found


def _of(objects: list[Object], *kinds: str) -> dict[str, Object]:
    """Objects of these kinds by the process they belong to."""
    return {
        found["metadata"]["labels"]["app.kubernetes.io/component"]: found
        for found in objects
        if found["kind"] in kinds
    }


def _workloads(objects: list[Object]) -> dict[str, Object]:
    return _of(objects, "Deployment", "StatefulSet")


def _container(workload: Object) -> Object:
    [container] = workload["spec"]["template"]["spec"]["containers"]
    return dict(container)


def _variables(workload: Object) -> dict[str, str]:
    found = {}
    for entry in _container(workload)["env"]:
        secret = entry.get("valueFrom", {}).get("secretKeyRef", {}).get("key")
        found[entry["name"]] = f"secret:{secret}" if secret else str(entry["value"])
    return found


def test_helm_lint_finds_nothing() -> None:
    assert helm.lint() == []


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_valid(objects: list[Object], version: str) -> None:
    for found in objects:
        kubernetes_validate.validate(found, version, strict=True)


def test_an_object_that_is_not_valid_would_be_seen(full: list[Object]) -> None:
    [broken] = [o for o in full if o["kind"] == "StatefulSet"]
    broken = {**broken, "spec": {**broken["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(broken, KUBERNETES[-1], strict=True)


@pytest.mark.parametrize(
    "values",
    [
        {"procesess": {}},
        {"processes": {"memory": {"replicas": -1}}},
        {"logLevel": "LOUD"},
        {"networkPolicy": {"databaseCidr": "postgres"}},
        {"shutdown": {"marginSeconds": 0}},
    ],
    ids=["misspelt", "negative", "level", "address", "margin"],
)
def test_wrong_values_are_refused(values: Object) -> None:
    with pytest.raises(helm.HelmRefused):
        helm.render(values)


def test_there_is_a_workload_for_every_process_of_the_compose_file(
    plain: list[Object], full: list[Object]
) -> None:
    services = COMPOSE["services"]
    ours = {n for n, s in services.items() if "build" in s} - {"migrate"}
    assert set(_workloads(full)) == ours == set(PROCESSES)
    assert set(_workloads(plain)) == ours - OPTIONAL
    assert {n for n in ours if services[n].get("profiles")} == OPTIONAL
    components = {o["metadata"]["labels"]["app.kubernetes.io/component"] for o in plain}
    assert not OPTIONAL & components, "what is not asked for leaves nothing behind"


def test_whatever_has_metrics_may_be_asked_for_them_and_may_send_its_spans(
    full: list[Object],
) -> None:
    policies = _of(full, "NetworkPolicy")
    for name, workload in _workloads(full).items():
        measured = name != "mcp"
        ports = {port["containerPort"] for port in _container(workload)["ports"]}
        noted = workload["spec"]["template"]["metadata"]["annotations"]["prometheus.io/scrape"]
        spec = policies[name]["spec"]
        doors = {p["port"] for rule in spec.get("ingress", []) for p in rule["ports"]}
        ways = {p["port"] for rule in spec["egress"] for p in rule["ports"]}
        found = (9464 in ports, noted == "true", 9464 in doors, 4317 in ways)
        assert found == (measured,) * 4, name
        assert ("NIANLUN_OTLP_ENDPOINT" in _variables(workload)) == measured


def test_the_mcp_server_has_no_key_and_answers_to_its_names(full: list[Object]) -> None:
    given = _variables(_workloads(full)["mcp"])
    assert set(given) <= {*mcp.Variable, *mcp.ADDRESSES}
    assert not [value for value in given.values() if value.startswith("secret:")]
    assert given[mcp.Variable.HOSTS] == "demo-mcp:8090,demo-mcp.prod.svc:8090,mcp.example.com"
    [rule] = _of(full, "NetworkPolicy")["mcp"]["spec"]["ingress"]
    assert rule["from"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "agents"}}}
    ], "the ingress leads to the gateway alone"


def test_images_are_targets_of_the_dockerfile(objects: list[Object], full: list[Object]) -> None:
    for found in (*_workloads(objects).values(), *_of(objects, "Job").values()):
        target = re.sub(r"^(?:.*/)?nianlun-(.+):(.+)$", r"\1", _container(found)["image"])
        assert target in STAGES
        assert dockerfile.image(STAGES, target).entrypoint
    assert _container(_workloads(full)["memory"])["image"] == (
        "registry.example.com/team/nianlun-memory:1.2.3"
    )
    assert "nianlun-embedder-gpu:" in _container(_workloads(full)["embedder"])["image"]


def test_variables_are_those_of_the_settings_classes(objects: list[Object]) -> None:
    known = {field.env for section in config.sections() for field in section.fields}
    for name, workload in _workloads(objects).items():
        given = _variables(workload)
        own = {*mcp.Variable, *mcp.ADDRESSES} if name == "mcp" else known
        unknown = set(given) - own - {"PGPASSWORD", "MAINTENANCE_PASSWORD"}
        assert unknown == set(), name
        prefix = f"NIANLUN_{name.removesuffix('-worker').upper()}_"
        image = dockerfile.image(STAGES, name).environment
        required = {
            field.env
            for section in config.sections()
            for field in section.fields
            if field.default is None and field.env.startswith(prefix)
        }
        assert required <= {*given, *image}, name


def test_containers_are_told_what_the_compose_file_tells_them(objects: list[Object]) -> None:
    """Roles, neighbours and secrets are the same in both; only host names differ."""
    for name, workload in _workloads(objects).items():
        given = _variables(workload)
        wanted = COMPOSE["services"][name]["environment"]
        targets = {key: value for key, value in wanted.items() if key.endswith("_TARGET")}
        assert {k for k in given if k.endswith("_TARGET")} == set(targets)
        for key, value in targets.items():
            host, _, port = value.partition(":")
            assert given[key] == f"demo-{host}.prod.svc:{port}"
        for key, value in wanted.items():
            if key.endswith("_DATABASE_DSN"):
                assert given[key].startswith(value.rpartition("@")[0] + "@")
        if "PGPASSWORD_FILE" in wanted:
            secret = wanted["PGPASSWORD_FILE"].rpartition("/")[2]
            assert given["PGPASSWORD"] == f"secret:{secret}"
    worker = _variables(_workloads(objects)["retriever-worker"])
    assert worker["NIANLUN_RETRIEVER_MAINTENANCE_DSN"].startswith(
        "postgresql://nianlun_maintenance:$(MAINTENANCE_PASSWORD)@"
    )
    assert "MAINTENANCE_PASSWORD" not in _variables(_workloads(objects)["retriever"])


def test_secrets_are_those_of_the_secrets_script(full: list[Object]) -> None:
    keys = {
        entry["valueFrom"]["secretKeyRef"]["key"]
        for found in (*_workloads(full).values(), *_of(full, "Job").values())
        for entry in _container(found)["env"]
        if "valueFrom" in entry
    }
    assert keys <= {*COMPOSE["secrets"], "llm_api_key"}
    for name, workload in _workloads(full).items():
        held = {v for v in _variables(workload).values() if v.startswith("secret:")}
        assert "secret:db_owner_password" not in held, name
        assert "secret:tenant_key" not in held, name


def test_the_migration_is_a_hook_that_comes_first(objects: list[Object]) -> None:
    [job] = _of(objects, "Job").values()
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    given = _variables(job)
    wanted = COMPOSE["services"]["migrate"]
    assert {n.removesuffix("_FILE") for n in wanted["environment"]} == set(given)
    assert _container(job)["args"][:2] == wanted["command"][:2]
    policy = _of(objects, "NetworkPolicy")["migration"]["metadata"]["annotations"]
    assert int(policy["helm.sh/hook-weight"]) < int(
        job["metadata"]["annotations"]["helm.sh/hook-weight"]
    )


def test_probes_ask_the_ports_that_are_listened_on(objects: list[Object]) -> None:
    for name, workload in _workloads(objects).items():
        container = _container(workload)
        image = dockerfile.image(STAGES, name)
        assert {port["containerPort"] for port in container["ports"]} == set(image.ports), name
        listens = [v for k, v in image.environment.items() if k.endswith("_LISTEN")]
        ready = container["readinessProbe"]
        if name.endswith("-worker"):
            assert ready["httpGet"] == {"path": "/healthz", "port": "metrics"}
        elif name in HTTP:
            assert ready["httpGet"] == {"path": "/healthz", "port": "http"}
        else:
            assert listens == [f"0.0.0.0:{ready['grpc']['port']}"]
        # A database that is away makes a pod unready; it must not make Kubernetes restart it.
        assert set(container["livenessProbe"]) & {"grpc", "httpGet"} == set()


def test_pods_have_the_time_to_drain(objects: list[Object]) -> None:
    for name, workload in _workloads(objects).items():
        given = _variables(workload)
        pod = workload["spec"]["template"]["spec"]
        wait = 0.0
        if not name.endswith("-worker"):
            command = _container(workload)["lifecycle"]["preStop"]["exec"]["command"]
            wait = float(command[1])
        used = wait + sum(float(given.get(n, 0)) for n in ("NIANLUN_DRAIN_S", "NIANLUN_GRACE_S"))
        used += mcp.HttpSettings.grace_s if name == "mcp" else 0
        assert pod["terminationGracePeriodSeconds"] > used, name


def test_names_of_grpc_services_resolve_to_all_pods(objects: list[Object]) -> None:
    for name, service in _of(objects, "Service").items():
        assert (service["spec"].get("clusterIP") == "None") == (name not in HTTP), name
        labels = _workloads(objects)[name]["spec"]["template"]["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()


def test_selectors_tell_the_processes_apart(objects: list[Object]) -> None:
    workloads = _workloads(objects)
    for kind, where in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        for name, found in _of(objects, kind).items():
            wanted = found["spec"][where]["matchLabels"].items()
            chosen = [
                other
                for other, workload in workloads.items()
                if wanted <= workload["spec"]["template"]["metadata"]["labels"].items()
            ]
            assert chosen == ([name] if name in workloads else [])


def test_containers_have_no_privileges(objects: list[Object]) -> None:
    for found in (*_workloads(objects).values(), *_of(objects, "Job").values()):
        pod = found["spec"]["template"]["spec"]
        security = _container(found)["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert str(pod["securityContext"]["runAsUser"]) == dockerfile.image(STAGES, "memory").user
        assert pod["automountServiceAccountToken"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} <= set(_container(found)["resources"])


def test_the_embedder_scales_on_the_tokens_that_wait(full: list[Object]) -> None:
    scalers = _of(full, "HorizontalPodAutoscaler")
    assert set(scalers) == set(PROCESSES)
    [metric] = scalers["embedder"]["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == "nianlun_embedder_queue_tokens"
    adapter = yaml.safe_load(
        (helm.REPOSITORY / "deploy" / "observability" / "prometheus-adapter.yaml").read_text()
    )
    [rule] = adapter["rules"]["custom"]
    assert rule["name"]["as"] == metric["pods"]["metric"]["name"]
    for name, scaler in scalers.items():
        workload = _workloads(full)[name]
        assert scaler["spec"]["scaleTargetRef"]["kind"] == workload["kind"]
        assert scaler["spec"]["scaleTargetRef"]["name"] == workload["metadata"]["name"]
        assert "replicas" not in workload["spec"], "an upgrade would undo the scaling"


def test_doors_are_open_between_those_who_talk_and_closed_else(full: list[Object]) -> None:
    policies = _of(full, "NetworkPolicy")
    calls = {
        (name, key.split("_")[-2].lower())
        for name, workload in _workloads(full).items()
        for key in _variables(workload)
        if key.endswith("_TARGET")
    }
    outgoing = {
        (name, peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"])
        for name, policy in policies.items()
        for rule in policy["spec"]["egress"]
        for peer in rule.get("to", [])
        if "app.kubernetes.io/component" in peer.get("podSelector", {}).get("matchLabels", {})
    }
    incoming = {
        (peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"], name)
        for name, policy in policies.items()
        for rule in policy["spec"].get("ingress", [])
        for peer in rule.get("from", [])
        if "podSelector" in peer
    }
    assert outgoing == incoming == calls
    for name, policy in policies.items():
        assert set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"}
        peers = [peer for rule in policy["spec"]["egress"] for peer in rule.get("to", [])]
        reaches = [peer["ipBlock"]["cidr"] for peer in peers if "ipBlock" in peer]
        assert ("10.0.0.0/8" in reaches) == (name in ("memory", "memory-worker", "orchestrator"))
        assert ("0.0.0.0/0" in reaches) == (name not in HTTP), "they have no database"


def test_without_names_of_namespaces_nobody_outside_may_call(plain: list[Object]) -> None:
    for policy in _of(plain, "NetworkPolicy").values():
        for rule in policy["spec"].get("ingress", []):
            assert all("namespaceSelector" not in peer for peer in rule["from"])
