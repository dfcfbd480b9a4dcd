"""One question to the stack, and everything the stream of events says about its answer."""

from __future__ import annotations

import time
from dataclasses import dataclass

from nianlun import Client, chat_input
from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as orchestrator
from services.local.demo.documents import COLLECTION


@dataclass(frozen=True)
class Step:
    """One step of the timeline; times in milliseconds from the start of the run."""

    name: str
    label: str
    status: str
    start_ms: float
    ms: float
    note: str


@dataclass(frozen=True)
class Cited:
    """A citation: the passage, where it is from, and why it was found."""

    document_id: str
    chunk_id: str
    title: str
    section: str
    text: str
    score: float
    legs: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Memory:
    """An item of memory that was put before the reasoner, and why."""

    item_id: str
    layer: str
    trust: str
    text: str
    score: float
    why: str


@dataclass(frozen=True)
class Tokens:
    """Tokens of the prompt: in all, by part, and had the documents been sent whole."""

    total: int
    memory: int
    evidence: int
    history: int
    whole_documents: int


@dataclass(frozen=True)
class Outcome:
    """A question, its answer, and where the answer comes from."""

    question: str
    session_id: str
    run_id: str
    answer: str
    model: str
    intent: str
    steps: tuple[Step, ...]
    citations: tuple[Cited, ...]
    memories: tuple[Memory, ...]
    left_out: tuple[str, ...]
    tokens: Tokens
    degradations: tuple[str, ...]
    first_text_ms: float
    total_ms: float
    completed_events: int


class ChatFailedError(Exception):
    """The run ended without an answer."""


def ask(client: Client, user_id: str, session_id: str, text: str, *, documents: bool) -> Outcome:
    """Stream one chat to its end.

    Raises:
        ChatFailedError: it did not complete.
        nianlun.NianlunError: the call failed.
    """
    asked = chat_input(
        user_id,
        session_id,
        text,
        collection_id=COLLECTION if documents else "",
        use_retrieval=documents,
        time_zone="Asia/Shanghai",
    )
    begin = time.monotonic()
    first_text_ms = 0.0
    completed = 0
    context = orchestrator.ContextReady()
    last: orchestrator.Completed | None = None
    with client.stream_chat(asked) as events:
        for event in events:
            kind = event.WhichOneof("event")
            if kind == "context_ready":
                context = event.context_ready
            elif kind == "text_delta" and not first_text_ms:
                first_text_ms = _since(begin)
            elif kind == "completed":
                completed += 1
                last = event.completed
    if last is None or last.state != orchestrator.RUN_STATE_COMPLETED:
        raise ChatFailedError(f"no answer to {text!r}: {last.error.message if last else 'cut off'}")
    return _outcome(
        text, session_id, last.response, context, first_text_ms, _since(begin), completed
    )


def _outcome(
    question: str,
    session_id: str,
    response: orchestrator.ChatResponse,
    context: orchestrator.ContextReady,
    first_text_ms: float,
    total_ms: float,
    completed: int,
) -> Outcome:
    tokens = response.prompt_tokens
    return Outcome(
        question=question,
        session_id=session_id,
        run_id=response.run_id,
        answer=response.answer.text,
        model=response.model,
        intent=_name(orchestrator.Intent.Name(response.intent), "INTENT_"),
        steps=tuple(_step(each) for each in response.steps),
        # Several sentences may rest on one passage.
        citations=tuple(dict.fromkeys(_cited(each) for each in response.answer.citations)),
        memories=tuple(_memory(each) for each in response.answer.memories),
        left_out=tuple(f"{each.layer}: {each.count} ({each.reason})" for each in context.left_out),
        tokens=Tokens(
            total=tokens.total,
            memory=tokens.memory,
            evidence=tokens.evidence,
            history=tokens.history,
            whole_documents=tokens.whole_documents,
        ),
        degradations=tuple(_degradation(each) for each in response.degradations),
        first_text_ms=first_text_ms,
        total_ms=total_ms,
        completed_events=completed,
    )


def _step(record: orchestrator.StepRecord) -> Step:
    notes = [f"{key} {value}" for key, value in sorted(record.counts.items())]
    return Step(
        name=record.step,
        label=record.label or record.step,
        status=_name(orchestrator.StepStatus.Name(record.status), "STEP_STATUS_"),
        start_ms=record.start_ms,
        ms=record.ms,
        note="; ".join([*notes, *([record.message] if record.message else [])]),
    )


def _cited(citation: orchestrator.Citation) -> Cited:
    evidence = citation.evidence
    return Cited(
        document_id=evidence.document_id,
        chunk_id=evidence.chunk_id,
        title=evidence.title,
        section=evidence.section,
        text=evidence.text,
        score=evidence.score,
        legs=tuple((leg.leg, leg.score) for leg in evidence.legs),
    )


def _memory(used: orchestrator.MemoryUsed) -> Memory:
    return Memory(
        item_id=used.item_id,
        layer=used.layer,
        trust=used.trust,
        text=used.text,
        score=used.score,
        why=used.why,
    )


def _degradation(item: common_pb2.Degradation) -> str:
    kind = _name(common_pb2.DegradationKind.Name(item.kind), "DEGRADATION_KIND_")
    return f"{kind}: {item.message}" if item.message else kind


def _name(value: str, prefix: str) -> str:
    return value.removeprefix(prefix).lower()


def _since(begin: float) -> float:
    return (time.monotonic() - begin) * 1000
