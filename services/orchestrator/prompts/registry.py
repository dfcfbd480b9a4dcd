"""Which prompt belongs to which intent."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator.prompts import (
    chat,
    document_question,
    extract,
    personalised_summary,
    structured_plan,
)
from services.orchestrator.prompts.branch import IntentPrompt

PROMPTS: Mapping[pb.Intent.ValueType, IntentPrompt] = MappingProxyType(
    {
        pb.INTENT_CHAT: chat.PROMPT,
        pb.INTENT_DOCUMENT_QUESTION: document_question.PROMPT,
        pb.INTENT_PERSONALISED_SUMMARY: personalised_summary.PROMPT,
        pb.INTENT_STRUCTURED_PLAN: structured_plan.PROMPT,
        pb.INTENT_EXTRACT: extract.PROMPT,
    }
)
