"""From gathered memory and evidence to a prompt, and the ContextReady event that shows it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator.intents import INTENTS
from services.orchestrator.prompts.assemble import Budget, Material, Prompt, assemble
from services.orchestrator.turn import Turn


@dataclass(frozen=True)
class ContextBuilder:
    """Makes prompts within a budget. `tools` says whether a model that may call tools will read
    them.
    """

    budget: Budget
    tools: bool

    def build(self, turn: Turn, *, announce: bool = True) -> Prompt:
        """Assemble `turn.prompt`, number `turn.evidence`, and emit ContextReady."""
        spec = INTENTS[turn.intent]
        turn.title = _title(turn)
        prompt = assemble(
            Material(
                input=turn.input,
                intent=turn.intent,
                history=turn.history,
                memory=turn.memory,
                readings=turn.readings,
                evidence=turn.evidence,
                title=turn.title,
                schema=_schema_text(turn) if spec.structured else "",
                tools=self.tools and uses_tools(turn),
                document_fallback=turn.document_fallback,
                whole_document_tokens=turn.whole_document_tokens,
            ),
            self.budget,
        )
        turn.prompt = prompt
        turn.evidence = list(prompt.evidence)
        if prompt.evidence_cut:
            turn.degrade(
                common_pb2.DEGRADATION_KIND_TRUNCATED,
                "prompt",
                "evidence was cut to fit the prompt",
            )
        if prompt.history_cut:
            turn.degrade(
                common_pb2.DEGRADATION_KIND_TRUNCATED,
                "prompt",
                "earlier messages were cut or left out",
            )
        if announce:
            turn.log.emit(context_ready(turn))
        return prompt


def uses_tools(turn: Turn) -> bool:
    """Whether this turn's model may call tools: not for JSON, and only where a tool has something
    to reach.
    """
    asked = turn.input
    if not asked.use_tools or INTENTS[turn.intent].structured:
        return False
    knowledge = asked.use_retrieval and bool(asked.collection_id)
    return knowledge or (asked.use_memory and bool(asked.user_id))


def context_ready(turn: Turn) -> pb.ContextReady:
    """What the model will be told, as an event."""
    return pb.ContextReady(
        intent=turn.intent,
        route_reason=turn.route_reason,
        evidence=turn.evidence,
        memories=turn.memory.items,
        left_out=turn.memory.left_out,
        tokens=turn.prompt.tokens if turn.prompt else None,
        confidence=turn.retrieved.confidence,
        recommendations=recommendations(turn),
    )


def recommendations(turn: Turn) -> list[pb.Recommendation]:
    """Earlier readings the answer relates to."""
    return [
        pb.Recommendation(
            reading_id=one.reading_id,
            document_id=one.document_id,
            title=one.title,
            score=one.score,
        )
        for one in turn.readings.similar
    ]


def schema_of(turn: Turn) -> dict[str, object]:
    """The JSON Schema of a structured answer: the caller's, else the intent's own."""
    given = turn.input.response_schema
    schema = INTENTS[turn.intent].schema if given is None else given
    return dict(schema or {})


def _schema_text(turn: Turn) -> str:
    return json.dumps(schema_of(turn), ensure_ascii=False, separators=(",", ":"), default=dict)


def _title(turn: Turn) -> str:
    if turn.title:
        return turn.title
    ids = turn.input.document_ids
    if turn.input.document_title:
        return turn.input.document_title
    if len(ids) == 1:
        return ids[0]
    if turn.intent == pb.INTENT_PERSONALISED_SUMMARY:
        return "当前文档" if turn.input.language == "zh" else "current document"
    return ""
