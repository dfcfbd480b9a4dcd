"""What each intent is made of: its steps in order, its label, its schema. Order
is data, not code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator.domain import Language

Stages = tuple[tuple[str, ...], ...]

GATHER: Stages = (("load_memory", "retrieve"),)
ANSWER: Stages = (("reason",), ("verify",), ("save_memory",))


@dataclass(frozen=True)
class IntentSpec:
    """One intent. `gather` runs before the prompt is made, `answer` after; both are stages of step
    names.
    """

    slug: str
    labels: Mapping[Language, str]
    gather: Stages
    answer: Stages = ANSWER
    structured: bool = False
    gated: bool = True
    schema: Mapping[str, Any] | None = None


PLAN_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "additionalProperties": False,
        "required": ["title", "goal", "steps"],
        "properties": {
            "title": {"type": "string", "minLength": 1},
            "goal": {"type": "string"},
            "steps": {
                "type": "array",
                "minItems": 1,
                "maxItems": 30,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["order", "title", "goal", "sources"],
                    "properties": {
                        "order": {"type": "integer", "minimum": 1},
                        "title": {"type": "string", "minLength": 1},
                        "goal": {"type": "string"},
                        "activities": {"type": "array", "items": {"type": "string"}},
                        "minutes": {"type": "integer", "minimum": 1},
                        "sources": {"type": "array", "items": {"type": "string"}},
                    },
                },
            },
        },
    }
)

EXTRACT_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "additionalProperties": False,
        "required": ["fields"],
        "properties": {
            "fields": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["name", "value", "evidence"],
                    "properties": {
                        "name": {"type": "string"},
                        "value": {"type": ["string", "number", "boolean", "null"]},
                        "evidence": {"type": "array", "items": {"type": "string"}},
                    },
                },
            }
        },
    }
)


def _labels(zh: str, en: str) -> Mapping[Language, str]:
    return MappingProxyType({"zh": zh, "en": en})


INTENTS: Mapping[pb.Intent.ValueType, IntentSpec] = MappingProxyType(
    {
        pb.INTENT_CHAT: IntentSpec("chat", _labels("对话", "Chat"), GATHER),
        pb.INTENT_DOCUMENT_QUESTION: IntentSpec(
            "document_question", _labels("文档问答", "Document question"), GATHER
        ),
        pb.INTENT_PERSONALISED_SUMMARY: IntentSpec(
            "personalised_summary",
            _labels("个性化总结", "Personalised summary"),
            (*GATHER, ("readings",)),
            gated=False,
        ),
        pb.INTENT_STRUCTURED_PLAN: IntentSpec(
            "structured_plan",
            _labels("结构化计划", "Structured plan"),
            GATHER,
            structured=True,
            gated=False,
            schema=PLAN_SCHEMA,
        ),
        pb.INTENT_EXTRACT: IntentSpec(
            "extract",
            _labels("信息提取", "Extraction"),
            GATHER,
            structured=True,
            gated=False,
            schema=EXTRACT_SCHEMA,
        ),
    }
)

STEP_LABELS: Mapping[str, Mapping[Language, str]] = MappingProxyType(
    {
        "route": _labels("判断意图", "Route"),
        "load_memory": _labels("读取记忆", "Load memory"),
        "retrieve": _labels("检索资料", "Search knowledge"),
        "readings": _labels("查找相近读物", "Find similar readings"),
        "reason": _labels("思考与回答", "Answer"),
        "verify": _labels("核对依据", "Verify"),
        "save_memory": _labels("保存记忆", "Save memory"),
    }
)
