"""JSON by schema: found, validated, sources checked, made by rules where there is no model."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator.domain import TurnInput
from services.orchestrator.intents import EXTRACT_SCHEMA, PLAN_SCHEMA
from services.orchestrator.reasoner import rules, structured

SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
ASKED = TurnInput(message="学习 gRPC", event_time=datetime.now(UTC), language="zh")
EVIDENCE = [
    pb.Evidence(evidence_id="E1", document_id="d", title="甲", section="一", text="第一节讲基础。"),
    pb.Evidence(
        evidence_id="E2", document_id="d", title="甲", section="二", text="价格：100 元\n作者：张三"
    ),
]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        '```json\n{"a": 1}\n```',
        'Based on {about travel}, here: {"a": 1} - done {x}',
        '{"b": 2} {"a": 1}',
    ],
)
def test_w1_json_is_found_in_whatever_surrounds_it(text: str) -> None:
    assert structured.parse(text, SCHEMA).value == {"a": 1}


@pytest.mark.parametrize("text", ["", "no json", '{"a": 1', '{"a": "x"}', "[1]"])
def test_what_is_no_answer_says_why(text: str) -> None:
    parsed = structured.parse(text, SCHEMA)
    assert not parsed.ok
    assert parsed.errors[0]


def test_schemas_are_checked() -> None:
    assert structured.check_schema(SCHEMA) is None
    assert structured.check_schema({"type": "wizard"})
    assert structured.check_schema({"$ref": "https://evil.example/schema"})
    assert structured.check_schema({"$ref": "#/$defs/x", "$defs": {"x": {}}}) is None


def test_sources_that_were_not_given_are_dropped() -> None:
    value = {"steps": [{"sources": ["E1", "[E2]", "E9"]}], "note": "E9"}
    kept, dropped = structured.check_sources(value, EVIDENCE)
    assert kept["steps"][0]["sources"] == ["E1", "E2"]
    assert dropped == ["E9"]
    text = json.dumps(kept)
    for one in structured.citations(text, kept, EVIDENCE):
        assert text[one.start : one.end] == one.evidence_id


def test_k11_a_plan_without_a_model_satisfies_the_schema() -> None:
    plan = rules.plan(ASKED, EVIDENCE)
    assert structured.validate(plan, PLAN_SCHEMA) == ()
    assert [step["sources"] for step in plan["steps"]] == [["E1"], ["E2"]]
    assert structured.validate(rules.plan(ASKED, []), PLAN_SCHEMA) == ()


def test_fields_without_a_model() -> None:
    own = rules.fields(ASKED, EVIDENCE, EXTRACT_SCHEMA, True)
    assert structured.validate(own, EXTRACT_SCHEMA) == ()
    assert {"name": "作者", "value": "张三", "evidence": ["E2"]} in own["fields"]
    wanted = {"properties": {"作者": {"type": "string"}, "价格": {"type": "integer"}}}
    assert rules.fields(ASKED, EVIDENCE, wanted, False) == {"作者": "张三", "价格": 100}
