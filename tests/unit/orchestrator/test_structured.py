"""JSON by schema: found, validated, sources checked, made by rules where there is no model."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator.domain import TurnInput
from services.orchestrator.intents import EXTRACT_SCHEMA, PLAN_SCHEMA
from services.orchestrator.reasoner import rules, schemas, structured

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
async def test_w1_json_is_found_in_whatever_surrounds_it(text: str) -> None:
    assert (await structured.parse(text, SCHEMA)).value == {"a": 1}


@pytest.mark.parametrize("text", ["", "no json", '{"a": 1', '{"a": "x"}', "[1]"])
async def test_what_is_no_answer_says_why(text: str) -> None:
    parsed = await structured.parse(text, SCHEMA)
    assert not parsed.ok
    assert parsed.errors[0]


def test_schemas_are_checked() -> None:
    assert schemas.check_schema(SCHEMA) is None
    assert schemas.check_schema({"type": "wizard"})
    assert schemas.check_schema({"$ref": "https://evil.example/schema"})
    assert schemas.check_schema({"$ref": "#/$defs/x", "$defs": {"x": {}}}) is None


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
    assert schemas.validate(plan, PLAN_SCHEMA) == ()
    assert [step["sources"] for step in plan["steps"]] == [["E1"], ["E2"]]
    assert schemas.validate(rules.plan(ASKED, []), PLAN_SCHEMA) == ()


def test_fields_without_a_model() -> None:
    own = rules.fields(ASKED, EVIDENCE, EXTRACT_SCHEMA, True)
    assert schemas.validate(own, EXTRACT_SCHEMA) == ()
    assert {"name": "作者", "value": "张三", "evidence": ["E2"]} in own["fields"]
    wanted = {"properties": {"作者": {"type": "string"}, "价格": {"type": "integer"}}}
    assert rules.fields(ASKED, EVIDENCE, wanted, False) == {"作者": "张三", "价格": 100}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/nope"},
        {"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"a": {}}},
        {"pattern": "(("},
        {"patternProperties": {"[": {}}},
        {"items": [{"$ref": "#x"}]},
    ],
)
def test_schemas_that_cannot_be_used_are_refused(schema: dict[str, Any]) -> None:
    assert schemas.check_schema(schema)


DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": "^(a+)+$"}}},
        {"patternProperties": {"^(k|k|k)+$": {}}, "properties": {"a": {"pattern": "(a|a)*b"}}},
        {"$ref": "#/$defs/d0", "$defs": {**DOUBLING, "d40": {}}},
    ],
)
async def test_a_schema_that_takes_for_ever_is_bounded_and_blocks_nobody(
    schema: dict[str, Any],
) -> None:
    value = json.dumps({"a": "a" * 40 + "!", "k" * 40 + "!": 1})
    assert schemas.check_schema(schema) is None
    waits: list[float] = []

    async def others() -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.01)
            waits.append(time.monotonic() - begun)

    watching = asyncio.create_task(others())
    begun = time.monotonic()
    parsed = await asyncio.wait_for(structured.parse(value, schema), 60)
    took = time.monotonic() - begun
    watching.cancel()
    assert not parsed.ok
    assert "too long" in parsed.errors[0]
    # Where it blocks the loop, one wait is as long as all of it.
    assert max(waits) < took / 2


async def test_patterns_and_references_still_judge() -> None:
    schema = {
        "properties": {"code": {"pattern": "^[A-Z]{3}-\\d+$"}, "next": {"$ref": "#"}},
        "required": ["code"],
    }
    assert (await structured.parse('{"code": "INV-20931"}', schema)).ok
    nested = await structured.parse('{"code": "INV-1", "next": {"code": "编号一"}}', schema)
    assert nested.errors[0].startswith("next/code")
    endless = await structured.parse('{"a": 1}', {"$ref": "#"})
    assert "without end" in endless.errors[0]
