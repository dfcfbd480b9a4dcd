"""Assembling a prompt: U-shaped order, token budgets, memory only in the system prompt.

Order (models attend best to both ends): role, memory | task, evidence, form | language and tool
limits. Then the session's messages, then the user's message. Memory never enters the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.orchestrator import tokens
from services.orchestrator.domain import History, HistoryLine, LoadedMemory, Readings, TurnInput
from services.orchestrator.prompts import blocks, shared
from services.orchestrator.prompts.branch import Branch
from services.orchestrator.prompts.registry import PROMPTS
from services.orchestrator.titles import inline

_LEAST_TOKENS = 40
"""Less of a message than this says nothing."""
_HEADING_TOKENS = 24
"""The heading above the evidence, and the lines between the passages."""
_FRAME_TOKENS = 1_200
"""Sentences of a prompt and a summary of the session's older part."""


@dataclass(frozen=True)
class Message:
    """One message of a prompt."""

    role: str
    text: str


@dataclass(frozen=True)
class Budget:
    """Token budgets by part. Evidence and history share what the rest of the prompt leaves of
    `total`; the rest (the task, memory, the message) is never cut.
    """

    total: int = 12_000
    evidence: int = 4_000
    history: int = 4_000

    def history_share(self, rest: int) -> int:
        """What the history may always take where the rest of a prompt takes `rest` tokens."""
        left = max(0, self.total - rest)
        return min(self.history, left * self.history // (self.history + self.evidence))


@dataclass(frozen=True)
class Prompt:
    """A prompt ready for a model, and what it holds."""

    messages: tuple[Message, ...]
    evidence: tuple[pb.Evidence, ...]
    branch: Branch
    tokens: pb.PromptTokens
    evidence_cut: bool = False
    history_cut: bool = False


@dataclass(frozen=True)
class Material:
    """Everything a prompt is made of."""

    input: TurnInput
    intent: pb.Intent.ValueType
    history: History
    memory: LoadedMemory
    readings: Readings
    evidence: Sequence[pb.Evidence]
    title: str = ""
    schema: str = ""
    tools: bool = False
    document_fallback: bool = False
    whole_document_tokens: int = 0


def assemble(material: Material, budget: Budget) -> Prompt:
    """The prompt for one turn. Deterministic: the same material gives the same bytes."""
    turn = material.input
    memory = material.memory.rendered
    frame = _system(material, _branch(material, material.evidence, True), "")
    rest = tokens.estimate(frame) + tokens.estimate(turn.message)
    rest += _HEADING_TOKENS if material.evidence else 0
    wanted = sum(tokens.estimate(line.text) for line in material.history.lines)
    left = max(0, budget.total - rest)
    evidence, evidence_cut = blocks.fit(
        material.evidence, min(budget.evidence, left - min(wanted, budget.history_share(rest)))
    )
    evidence_text = blocks.evidence(evidence, turn.language)
    lines, history_cut = latest(
        material.history.lines, min(budget.history, left - tokens.estimate(evidence_text))
    )
    branch = _branch(material, evidence, bool(lines))
    messages = (
        Message("system", _system(material, branch, evidence_text)),
        *(Message(line.role, line.text) for line in lines),
        Message("user", turn.message),
    )
    counted = pb.PromptTokens(
        total=sum(tokens.estimate(m.text) for m in messages),
        memory=tokens.estimate(memory),
        evidence=tokens.estimate(evidence_text),
        history=sum(tokens.estimate(line.text) for line in lines)
        + tokens.estimate(material.history.summary),
        whole_documents=material.whole_document_tokens,
    )
    return Prompt(messages, tuple(evidence), branch, counted, evidence_cut, history_cut)


def rest_of(turn: TurnInput, memory_tokens: int) -> int:
    """About what a prompt takes besides evidence and history, before there is one."""
    given = tokens.estimate(turn.message) + tokens.estimate(turn.instructions)
    return given + memory_tokens + _FRAME_TOKENS


def _system(material: Material, branch: Branch, evidence_text: str) -> str:
    """The system prompt: everything but the session's messages and the user's message."""
    turn = material.input
    prompt = PROMPTS[material.intent]
    parts = [
        "\n".join(prompt.role(branch)),
        material.memory.rendered,
        _section(
            branch.say("## 任务", "## Task"),
            [*prompt.task(branch), *shared.application(branch), _today(turn)],
        ),
        blocks.session_summary(material.history.summary, turn.language),
        blocks.readings(material.readings, turn.language),
        evidence_text,
        _section(branch.say("## 形式", "## Form"), prompt.form(branch)),
        _section(branch.say("## 约束", "## Constraints"), shared.constraints(branch)),
    ]
    return "\n\n".join(part for part in parts if part)


def _branch(material: Material, evidence: Sequence[pb.Evidence], history: bool) -> Branch:
    sources = {item.source for item in evidence}
    return Branch(
        language=material.input.language,
        preferences=material.memory.has_preferences,
        reference_memory=material.memory.has_reference,
        evidence=bool(evidence),
        selection=pb.EVIDENCE_SOURCE_SELECTION in sources,
        document_text=material.document_fallback and bool(evidence),
        history=history,
        readings=bool(material.readings.similar),
        first_reading=material.readings.known and material.readings.earlier == 0,
        tools=material.tools,
        schema=material.schema,
        title=inline(material.title),
        instructions=material.input.instructions,
    )


def _today(turn: TurnInput) -> str:
    day = turn.event_time.astimezone(ZoneInfo(turn.time_zone)).date().isoformat()
    return f"今天是 {day}。" if turn.language == "zh" else f"Today is {day}."


def _section(heading: str, lines: Sequence[str]) -> str:
    kept = [line for line in lines if line]
    return "\n".join([heading, *kept]) if kept else ""


def latest(lines: Sequence[HistoryLine], budget: int) -> tuple[list[HistoryLine], bool]:
    """The newest lines within `budget` tokens, and whether anything is missing. A line that does
    not fit is cut; it may be what the next message is about.
    """
    kept: list[HistoryLine] = []
    cut = False
    for index in reversed(range(len(lines))):
        line, room = lines[index], budget
        if line.role == "assistant" and index and lines[index - 1].role == "user":
            # An answer that leaves no room for its question would be left out with it.
            room -= min(tokens.estimate(lines[index - 1].text), budget // 2)
        if tokens.estimate(line.text) > room:
            if room < _LEAST_TOKENS:
                break
            line = HistoryLine(line.role, tokens.cut(line.text, room - 1) + "…")
            cut = True
        kept.append(line)
        budget -= tokens.estimate(line.text)
    kept.reverse()
    # A history opens with the user: an answer without its question confuses models.
    while kept and kept[0].role != "user":
        kept.pop(0)
    return kept, cut or len(kept) < len(lines)
