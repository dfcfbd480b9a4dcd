"""The dashboard and the alerts ask for what the processes export: names, labels and values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry

from services.common.settings import ChassisSettings
from services.common.telemetry import PoolState, Telemetry
from services.embedder.cache import VectorCache
from services.embedder.metrics import EmbedderMetrics
from services.orchestrator.gateway.telemetry import HttpMetrics
from tests.support import composefile, contract

REPOSITORY = composefile.REPOSITORY
FOLDER = REPOSITORY / "deploy" / "observability"
DASHBOARD: dict[str, Any] = json.loads(
    (FOLDER / "grafana" / "dashboards" / "nianlun.json").read_text()
)
ALERTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0][
    "rules"
]
SCRAPED: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
# What Prometheus adds by itself or by the scrape configuration.
GIVEN_LABELS = {"service", "instance", "job", "le"}
GIVEN_METRICS = {"up"}
CODES = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
}
VALUES = {
    "rpc_response_status_code": CODES,
    "rpc_method": {rpc.path.lstrip("/") for rpc in contract.RPCS},
    "outcome": {"succeeded", "cancelled", "failed", "retried", "lost"},
    "db_client_connection_state": {"idle", "used"},
}


def _panels() -> Iterator[dict[str, Any]]:
    for panel in DASHBOARD["panels"]:
        yield panel
        yield from panel.get("panels", [])


EXPRESSIONS: dict[str, str] = {
    **{
        f"panel {panel['title']} {target['refId']}": target["expr"]
        for panel in _panels()
        for target in panel.get("targets", [])
    },
    **{f"alert {rule['alert']}": rule["expr"] for rule in ALERTS},
}


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Every series a process can export, by name, with the names of its labels."""
    telemetry = Telemetry(ChassisSettings(), "all")
    telemetry.metrics.watch_pool("p", lambda: PoolState(0, 0, 0, 0))
    EmbedderMetrics(telemetry, VectorCache(1024))
    HttpMetrics.create(telemetry.metrics.registry)
    return _series(telemetry.metrics.registry)


def _series(registry: CollectorRegistry) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for collector in set(registry._collector_to_names):
        labels = set(getattr(collector, "_labelnames", ()))
        for name in registry._collector_to_names[collector]:
            found[name] = labels
    return found


def _selectors(node: Any) -> Iterator[Any]:
    """Every vector selector below a node of the parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("vector_selector", "expr", "lhs", "rhs", "param"):
        child = getattr(node, name, None)
        if child is not None and not isinstance(child, int | float | str):
            yield from _selectors(child)
    for child in getattr(node, "args", ()):
        yield from _selectors(child)


def _parsed(expression: str) -> Any:
    filled = expression.replace("$__rate_interval", "5m").replace("$service", ".+")
    return promql_parser.parse(filled)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_series_and_label_is_exported(name: str, exported: dict[str, set[str]]) -> None:
    found = list(_selectors(_parsed(EXPRESSIONS[name])))
    assert found
    for selector in found:
        assert selector.name in {*exported, *GIVEN_METRICS}
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert labels <= exported.get(selector.name, set()) | GIVEN_LABELS
    used = re.findall(r"(?:by|ignoring|on|without) \(([^)]*)\)", EXPRESSIONS[name])
    known = set().union(*(exported.get(s.name, set()) for s in found)) | GIVEN_LABELS
    assert {label.strip() for group in used for label in group.split(",")} <= known


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_value_that_is_asked_for_exists(name: str) -> None:
    for selector in _selectors(_parsed(EXPRESSIONS[name])):
        for matcher in selector.matchers.matchers:
            if matcher.name not in VALUES:
                continue
            for value in matcher.value.replace(".*/(", "").replace(")", "").split("|"):
                assert any(
                    known == value or known.endswith(f"/{value}") for known in VALUES[matcher.name]
                ), f"{matcher.name}={value}"


def test_a_misspelt_series_and_a_broken_expression_would_be_seen(
    exported: dict[str, set[str]],
) -> None:
    [selector] = _selectors(_parsed("rate(nianlun_rpc_total[5m])"))
    assert selector.name not in exported
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        _parsed("sum by (service (rate(up[5m]))")


def test_labels_in_texts_survive_the_aggregation() -> None:
    for rule in ALERTS:
        text = " ".join(rule["annotations"].values())
        for label in re.findall(r"\$labels\.(\w+)", text):
            assert label in rule["expr"] or label in {"service", "instance"}, rule["alert"]
    for panel in _panels():
        for target in panel.get("targets", []):
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert re.search(rf"by \([^)]*\b{label}\b", target["expr"]), panel["title"]


def test_alerts_name_a_severity_and_a_page_that_is_there() -> None:
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS)
    for rule in ALERTS:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        headings = {
            re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in text.splitlines()
            if line.startswith("#")
        }
        assert not anchor or anchor in headings, rule["alert"]


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    ids = [panel["id"] for panel in _panels()]
    assert len(ids) == len(set(ids))
    sources = yaml.safe_load(
        (FOLDER / "grafana/provisioning/datasources/prometheus.yml").read_text()
    )
    uids = {source["uid"] for source in sources["datasources"]}
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] in uids
    variable = DASHBOARD["templating"]["list"][0]
    assert variable["name"] == "service"
    assert variable["query"]["query"] == "label_values(nianlun_rpcs_in_flight, service)"


def test_prometheus_asks_every_process_that_has_metrics() -> None:
    [job] = SCRAPED["scrape_configs"]
    [lookup] = job["dns_sd_configs"]
    services = composefile.load("observability")["services"]
    ours = {
        name
        for name, service in services.items()
        if "NIANLUN_OTLP_ENDPOINT" in service.get("environment", {})
    }
    assert set(lookup["names"]) == ours
    assert lookup["port"] == 9464
    assert SCRAPED["rule_files"] == ["alerts.yml"]


def test_spans_go_where_the_collector_listens() -> None:
    collector = yaml.safe_load((FOLDER / "otel-collector.yaml").read_text())
    pipeline = collector["service"]["pipelines"]["traces"]
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == set(collector[kind])
    port = collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"].rpartition(":")[2]
    services = composefile.load("observability")["services"]
    endpoint = services["memory"]["environment"]["NIANLUN_OTLP_ENDPOINT"]
    assert endpoint == f"http://otel-collector:{port}"
    assert Path(services["otel-collector"]["volumes"][0].split(":")[0]).name == (
        "otel-collector.yaml"
    )
