"""What each process of the stack is told."""

from __future__ import annotations

from services.local import environment


def test_ports_are_free_and_differ() -> None:
    ports = environment.free_ports(20)
    assert len(set(ports)) == 20
    assert all(1024 < port < 65536 for port in ports)


def test_every_service_learns_its_address_its_database_and_its_neighbours() -> None:
    addresses = environment.choose_addresses()
    built = environment.build({}, addresses, lambda name: f"dsn-of-{name}", "nl_service", "json")
    assert built["NIANLUN_MEMORY_LISTEN"] == addresses["memory"]
    assert built["NIANLUN_MEMORY_EMBEDDER_TARGET"] == addresses["embedder"]
    assert built["NIANLUN_GATEWAY_ORCHESTRATOR_TARGET"] == addresses["orchestrator"]
    assert built["NIANLUN_RETRIEVER_DATABASE_DSN"] == "dsn-of-retriever"
    assert built["NIANLUN_RETRIEVER_MAINTENANCE_DSN"] == "dsn-of-maintenance"
    assert built["NIANLUN_SERVICE_KEY"] == "nl_service"


def test_addresses_of_the_caller_are_dropped_and_other_variables_kept() -> None:
    base = {
        "NIANLUN_MEMORY_DATABASE_DSN": "somewhere else",
        "NIANLUN_LOG_FORMAT": "json",
        "LLM_MODEL": "m",
    }
    built = environment.build(base, environment.choose_addresses(), str, "k", "console")
    assert built["NIANLUN_MEMORY_DATABASE_DSN"] == "memory"
    assert built["NIANLUN_LOG_FORMAT"] == "json"
    assert built["LLM_MODEL"] == "m"
