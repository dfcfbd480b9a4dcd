"""JSON by schema: found in whatever a model wrote, validated, its source ids checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator.reasoner import schemas

_SOURCE_KEYS = frozenset({"sources", "evidence", "citations", "source", "evidence_ids"})
_ID = re.compile(r"\[?([Ee]\d{1,4})\]?")


@dataclass(frozen=True)
class Parsed:
    """A model's JSON: the value where it is valid, else what is wrong with it."""

    value: Any = None
    errors: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the value satisfies the schema."""
        return not self.errors


async def parse(text: str, schema: Mapping[str, Any]) -> Parsed:
    """The first object in `text` that satisfies `schema`; prose, fences and braces around it are
    ignored.
    """
    candidates = _objects(text)
    if not candidates:
        return Parsed(errors=("there is no complete JSON object",))
    findings = await schemas.problems(candidates, schema)
    for value, found in zip(candidates, findings, strict=False):
        if not found:
            return Parsed(value=value)
    return Parsed(errors=findings[0])


def check_sources(value: Any, evidence: Sequence[pb.Evidence]) -> tuple[Any, list[str]]:
    """`value` without source ids that were not given, and those ids. Only lists under source keys
    are touched.
    """
    known = {item.evidence_id for item in evidence}
    dropped: list[str] = []

    def walk(node: Any, key: str) -> Any:
        if isinstance(node, dict):
            return {k: walk(v, k) for k, v in node.items()}
        if isinstance(node, list):
            if key in _SOURCE_KEYS:
                return _kept(node, known, dropped)
            return [walk(item, key) for item in node]
        return node

    return walk(value, ""), dropped


def citations(text: str, value: Any, evidence: Sequence[pb.Evidence]) -> list[pb.Citation]:
    """Where the JSON text points to evidence: ids in it, and values that a passage holds word for
    word.
    """
    by_id = {item.evidence_id: item for item in evidence}
    found = [
        _citation(by_id[match.group(1)], match.start(1), match.end(1))
        for match in re.finditer(r'"(E\d{1,4})"', text)
        if match.group(1) in by_id
    ]
    if found:
        return found
    for leaf in _leaves(value):
        quoted = json.dumps(leaf, ensure_ascii=False)
        start = text.find(quoted)
        holder = next((item for item in evidence if leaf in item.text), None)
        if start >= 0 and holder is not None:
            found.append(_citation(holder, start + 1, start + len(quoted) - 1))
    return found


def _citation(item: pb.Evidence, start: int, end: int) -> pb.Citation:
    return pb.Citation(evidence_id=item.evidence_id, evidence=item, start=start, end=end)


def _kept(items: list[Any], known: set[str], dropped: list[str]) -> list[Any]:
    kept = []
    for item in items:
        match = _ID.fullmatch(item) if isinstance(item, str) else None
        if match is None:
            kept.append(item)
        elif match.group(1).upper() in known:
            kept.append(match.group(1).upper())
        else:
            dropped.append(match.group(1).upper())
    return kept


def _objects(text: str) -> list[Any]:
    decoder = json.JSONDecoder()
    found: list[Any] = []
    position = text.find("{")
    while position >= 0 and len(found) < 8:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            position = text.find("{", position + 1)
            continue
        found.append(value)
        position = text.find("{", end)
    return found


def _leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value] if isinstance(value, str) and len(value) >= 2 else []
