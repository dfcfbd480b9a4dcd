"""The working state of one run. Steps read and write it; nothing else does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common.deadlines import Deadline
from services.orchestrator.domain import (
    History,
    LoadedMemory,
    Readings,
    Retrieved,
    TurnInput,
    degradation,
)
from services.orchestrator.events import EventLog
from services.orchestrator.prompts.assemble import Prompt


@dataclass
class Turn:
    """One run under way."""

    input: TurnInput
    log: EventLog
    deadline: Deadline
    request_id: str = ""
    intent: pb.Intent.ValueType = pb.INTENT_UNSPECIFIED
    route_reason: str = ""
    model_allowed: bool = True
    history: History = field(default_factory=History)
    memory: LoadedMemory = field(default_factory=LoadedMemory)
    retrieved: Retrieved = field(default_factory=Retrieved)
    readings: Readings = field(default_factory=Readings)
    title: str = ""
    document_fallback: bool = False
    whole_document_tokens: int = 0
    evidence: list[pb.Evidence] = field(default_factory=list)
    prompt: Prompt | None = None
    model: str = ""
    answer: pb.Answer | None = None
    usage: common_pb2.TokenUsage = field(default_factory=common_pb2.TokenUsage)
    degradations: list[common_pb2.Degradation] = field(default_factory=list)
    steps: list[pb.StepRecord] = field(default_factory=list)
    position: str = ""
    save_state: str = "off"
    save_failure: str = ""

    def degrade(
        self, kind: common_pb2.DegradationKind.ValueType, source: str, message: str, **metadata: str
    ) -> None:
        """Record one degradation and tell the follower; the same one twice counts once."""
        self.report(degradation(kind, source, message, **metadata))

    def report(self, item: common_pb2.Degradation) -> None:
        """As degrade, for a Degradation that another service reported."""
        if item not in self.degradations:
            self.degradations.append(item)
            self.log.emit(pb.Notice(degradation=item))

    def report_all(self, items: Iterable[common_pb2.Degradation]) -> None:
        """Report what a search of another service lacked."""
        for item in items:
            self.report(item)
