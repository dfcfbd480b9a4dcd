"""Structured answers without a model: a plan along the sections found, fields by their labels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator import sentences
from services.orchestrator.domain import TurnInput

_MARKUP = re.compile(r"^[#>*\-\s]+|[*_`]")
_LABELLED = re.compile(
    r"^\s*(?:[-*]\s*)?\**([^:：|\n]{1,30}?)\**\s*[:：]\s*\**\s*([^\n]{1,200}?)\s*$", re.MULTILINE
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def plan(turn: TurnInput, evidence: Sequence[pb.Evidence]) -> dict[str, Any]:
    """A learning path: one step per section of the evidence, in the order it was found, with its
    source.
    """
    zh = turn.language == "zh"
    steps: list[dict[str, Any]] = []
    sections: dict[str, dict[str, Any]] = {}
    for item in evidence:
        name = " > ".join(part for part in (item.title, item.section) if part) or item.document_id
        if name in sections:
            sections[name]["sources"].append(item.evidence_id)
            continue
        step: dict[str, Any] = {
            "order": len(steps) + 1,
            "title": name,
            "goal": _first_sentence(item.text),
            "sources": [item.evidence_id],
        }
        sections[name] = step
        steps.append(step)
    if not steps:
        goal = (
            "资料库里没有找到相关内容，请先补充资料"
            if zh
            else "Nothing relevant was found; add documents first"
        )
        steps = [{"order": 1, "title": turn.message[:60], "goal": goal, "sources": []}]
    return {"title": turn.message.strip()[:60], "goal": turn.message.strip()[:200], "steps": steps}


def fields(
    turn: TurnInput, evidence: Sequence[pb.Evidence], schema: Mapping[str, Any], own: bool
) -> dict[str, Any]:
    """Fields that texts state as `label: value`. `own` asks for the intent's own schema."""
    found: dict[str, tuple[str, str]] = {}
    sources = [(item.evidence_id, item.text) for item in evidence] or [("", turn.message)]
    for evidence_id, text in sources:
        for match in _LABELLED.finditer(text):
            found.setdefault(match.group(1).strip(), (match.group(2).strip("* "), evidence_id))
    if own:
        return {
            "fields": [
                {"name": name, "value": value, "evidence": [source] if source else []}
                for name, (value, source) in found.items()
            ]
        }
    wanted = schema.get("properties")
    if not isinstance(wanted, Mapping):
        return {}
    lowered = {name.lower(): value for name, (value, _) in found.items()}
    result: dict[str, Any] = {}
    for name, rule in wanted.items():
        value = _match(str(name), rule, lowered)
        if value is not None or _nullable(rule):
            result[str(name)] = value
    return result


def _match(name: str, rule: Any, found: Mapping[str, str]) -> Any:
    described = str(rule.get("description", "")) if isinstance(rule, Mapping) else ""
    for label, value in found.items():
        if label == name.lower() or label in described.lower() or name.lower() in label:
            return _typed(value, rule)
    return None


def _typed(value: str, rule: Any) -> Any:
    kind = rule.get("type") if isinstance(rule, Mapping) else None
    kinds = kind if isinstance(kind, list) else [kind]
    number = _NUMBER.search(value.replace(",", ""))
    if "integer" in kinds:
        return int(float(number.group())) if number else None
    if "number" in kinds:
        return float(number.group()) if number else None
    return [value] if "array" in kinds else value


def _nullable(rule: Any) -> bool:
    kind = rule.get("type") if isinstance(rule, Mapping) else None
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _first_sentence(text: str) -> str:
    for sentence in sentences.split(text):
        plain = _MARKUP.sub("", sentence.text).strip()
        if len(plain) >= 6 and not sentence.text.startswith("#"):
            return plain[:200]
    return text.strip()[:200]
