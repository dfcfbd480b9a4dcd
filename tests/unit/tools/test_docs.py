"""What the documentation site makes of contracts and measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("grpc_tools")

from tools.docs import contracts, figures, measured, reference

PROTO = """
syntax = "proto3";

// Keeps things.
//
// Second paragraph.
package nianlun.thing.v1;

// ThingService keeps things.
service ThingService {
  // Put stores one. Fails with <NOT_FOUND>.
  rpc Put(PutRequest) returns (PutResponse) {
    option idempotency_level = IDEMPOTENT;
  }
  // Watch streams.
  rpc Watch(PutRequest) returns (stream PutResponse) {
    option idempotency_level = NO_SIDE_EFFECTS;
  }
  // Poke has no level.
  rpc Poke(stream PutRequest) returns (PutResponse);
}

// Colour of a thing.
enum Colour {
  // Never sent.
  COLOUR_UNSPECIFIED = 0;
  // Red | green.
  COLOUR_RED = 1;
}

// PutRequest is a thing.
message PutRequest {
  // Its name, 1 to 5
  // characters.
  optional string name = 1;
  // Labels.
  map<string, Colour> labels = 2;
  // Either.
  oneof kind {
    // A number.
    int64 number = 3;
  }
  // Many.
  repeated Part parts = 4;
}

// PutResponse is empty.
message PutResponse {}

// Part of it.
message Part {
  // Set.
  bool set = 1;
}
"""


@pytest.fixture
def protos(tmp_path: Path) -> Path:
    folder = tmp_path / "nianlun/thing/v1"
    folder.mkdir(parents=True)
    (folder / "thing.proto").write_text(PROTO)
    return tmp_path


def test_comments_labels_and_types_are_read(protos: Path) -> None:
    (contract,) = contracts.read(protos)
    assert contract.page == "thing"
    assert contract.comment == "Keeps things.\n\nSecond paragraph."
    put, watch, poke = contract.services[0].rpcs
    assert (put.repeatable, watch.repeatable, poke.repeatable) == (
        "by request_id",
        "reads",
        "never",
    )
    assert (watch.server_streaming, poke.client_streaming) == (True, True)
    # The entry of a map is no message of its own.
    assert [message.name for message in contract.messages] == ["PutRequest", "PutResponse", "Part"]
    name, labels, number, parts = contract.messages[0].fields
    assert name.comment == "Its name, 1 to 5 characters."
    assert (name.label, name.type.name) == ("optional", "string")
    assert (labels.label, labels.key, labels.type.full_name) == (
        "map",
        "string",
        "nianlun.thing.v1.Colour",
    )
    assert number.label == "oneof kind"
    assert (parts.label, parts.type.name) == ("repeated", "Part")


def test_a_page_links_types_and_escapes_comments(protos: Path) -> None:
    text = reference.pages(protos)["thing.md"]
    assert "Fails with &lt;NOT_FOUND&gt;." in text
    assert "| `COLOUR_RED` | 1 | Red \\| green. |" in text
    assert "| `labels` | map of `string` to [Colour](#type-colour) | Labels. |" in text
    assert "| `parts` | repeated [Part](#type-part) | Many. |" in text
    assert "| [Watch](#watch) | server stream | reads |" in text
    assert "### Part { #type-part }" in text
    assert "No fields." in text


def test_a_fault_in_a_contract_stops_the_build(protos: Path) -> None:
    (protos / "nianlun/thing/v1/bad.proto").write_text("not a contract")
    with pytest.raises(contracts.subprocess.CalledProcessError):
        contracts.read(protos)


def test_figures_say_whether_they_keep_their_limit(tmp_path: Path) -> None:
    measured = {
        "name": "speed",
        "command": "python -m benchmarks.speed",
        "quick": True,
        "machine": {"cores": 2, "load_1min": 0.125},
        "versions": {"commit": "abc"},
        "figures": [
            {"name": "p95_ms", "value": 12.34567, "limit": 10.0, "ok": False},
            {"name": "recall", "value": 1.0, "limit": 0.97, "ok": True},
            {"name": "a|b", "value": 3, "limit": None, "ok": True},
        ],
    }
    (tmp_path / "speed.json").write_text(json.dumps(measured))
    (tmp_path / "speed.svg").write_text("<svg/>")
    text = figures.page(tmp_path)
    first = text.split("## speed")[0]
    assert "| [speed](#speed), a quick run | p95_ms | 12.35 | 10 |" in first
    assert "recall" not in first
    assert "| p95_ms | 12.35 | 10 | short |" in text
    assert "| recall | 1 | 0.97 | ok |" in text
    assert "| a\\|b | 3 |  |  |" in text
    assert "`python -m benchmarks.speed`, a quick run, 2 cores, load 0.125 at the start" in text
    assert "![speed](images/benchmarks/speed.svg)" in text


def test_without_a_short_figure_the_page_says_so(tmp_path: Path) -> None:
    kept = {"name": "recall", "value": 1.0, "limit": 0.97, "ok": True}
    body = {"name": "speed", "command": "python -m benchmarks.speed", "figures": [kept]}
    (tmp_path / "speed.json").write_text(json.dumps(body))
    assert "Nothing: every figure keeps its limit." in figures.page(tmp_path)


@pytest.mark.parametrize("page", measured.PAGES)
def test_measured_tables_are_those_of_the_results(page: str) -> None:
    text = (measured.ROOT / page).read_text(encoding="utf-8")
    assert "<!-- measured:" in text
    assert text == measured.merged(text), "run `make docs-config`"


@pytest.mark.parametrize("nested", [True, False])
def test_the_gate_table_names_what_is_far_from_the_mean(tmp_path: Path, nested: bool) -> None:
    gate = {
        "none_elsewhere": {"a -> b": 0.98, "c -> d": 0.5, "e -> f": 0.25},
        "refused_at_home": {"a": 0.0, "c": 0.25},
    }
    figures_of_gate = [
        {"name": "offtopic_none_share", "value": 0.576, "limit": ">=0.95", "ok": False},
        {"name": "intopic_refused_share", "value": 0.125, "limit": 0.2, "ok": True},
    ]
    body = {
        "figures": figures_of_gate,
        **({"details": {"gate": gate}} if nested else {"gate": gate}),
    }
    (tmp_path / "search.json").write_text(json.dumps(body))
    text = "before\n<!-- measured:gate:begin -->\nold\n<!-- measured:gate:end -->\nafter\n"
    rows = measured.merged(text, tmp_path).splitlines()
    elsewhere = "put to another set's corpus: nothing is shown"
    assert (rows[0], rows[-1]) == ("before", "after")
    assert rows[4:-2] == [
        f"| {elsewhere} (mean of 3 pairs) | 57.6 % | at least 95 %: **short** |",
        "| of these, `e` → `f` | 25 % | |",
        "| of these, `c` → `d` | 50 % | |",
        "| put to their own corpus: refused (mean of 2 sets) | 12.5 % | at most 20 %: kept |",
        "| of these, `c` | 25 % | |",
    ]


def test_a_table_that_nothing_makes_is_refused() -> None:
    with pytest.raises(measured.UnknownTable, match="tea"):
        measured.merged("<!-- measured:tea:begin -->\n<!-- measured:tea:end -->")
