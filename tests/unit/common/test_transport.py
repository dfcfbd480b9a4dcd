"""What clients retry follows from the contract."""

import json

from nianlun import transport
from services.common.grpc.client import service_of


def _config() -> dict:
    return json.loads(transport.service_config(transport.service_descriptors()))


def test_round_robin_and_no_timeout():
    config = _config()
    assert config["loadBalancingConfig"] == [{"round_robin": {}}]
    assert all("timeout" not in method for method in config["methodConfig"])


def test_only_unavailable_is_retried_and_only_what_the_contract_marks():
    entry = _config()["methodConfig"][0]
    assert entry["retryPolicy"]["retryableStatusCodes"] == ["UNAVAILABLE"]
    retried = {(name["service"], name["method"]) for name in entry["name"]}
    for service in transport.service_descriptors():
        for method in service.methods:
            marked = method.GetOptions().idempotency_level != 0
            assert ((service.full_name, method.name) in retried) is marked


def test_targets_are_resolved_to_all_addresses():
    assert transport.target_uri("127.0.0.1:5") == "dns:///127.0.0.1:5"
    assert transport.target_uri("dns:///x:1") == "dns:///x:1"
    assert transport.target_uri("unix:/tmp/s") == "unix:/tmp/s"


def test_service_names():
    assert service_of("/nianlun.embedder.v1.EmbedderService/Embed") == "embedder"
    assert service_of(b"/other.Service/Do") == "other.Service/Do"
