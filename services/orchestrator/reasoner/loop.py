"""The bounded tool loop, and what becomes of a run whose model hangs, loops, breaks off or says
nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from services.common.deadlines import Deadline
from services.common.llm import ModelError
from services.orchestrator.reasoner.model import (
    ChatModel,
    Done,
    ModelMessage,
    ModelRequest,
    Text,
    ToolRequest,
    ToolSpec,
)
from services.orchestrator.reasoner.spent import Spent

PARTIAL_CHARS = 100
"""A broken answer of at least this many characters is better than none."""
_PATIENCE_S = 1.0
"""Longer than this no busy model is waited for while another one has not been asked."""


@dataclass(frozen=True)
class ToolResult:
    """What a tool brought: `text` for the model, `summary` for people."""

    text: str
    summary: str
    ok: bool = True


class Toolbox(Protocol):
    """The tools of one run."""

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """The tools on offer; may be empty."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run one tool. Failures are results with ok=False, never exceptions."""


class Listener(Protocol):
    """Who wants to know what happens while the model works."""

    def text(self, piece: str) -> None:
        """A piece of the answer."""

    def thinking(self, piece: str) -> None:
        """A piece of thinking."""

    def tool_started(self, call: ToolRequest) -> None:
        """A tool call begins."""

    def tool_finished(self, call: ToolRequest, result: ToolResult, ms: float) -> None:
        """A tool call ended."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one run. Times in seconds."""

    rounds: int = 6
    tool_calls: int = 12
    retries: int = 2
    call_timeout_s: float = 60.0
    synthesis_share: float = 0.25
    synthesis_max_s: float = 20.0


@dataclass(frozen=True)
class Task:
    """What the reasoner is to do."""

    messages: Sequence[ModelMessage]
    synthesis_request: str
    schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None


@dataclass(frozen=True)
class Reasoned:
    """The outcome. `text` is None when nothing usable came; `recovered` says why
    the plan was left.
    """

    text: str | None
    finish: str
    model: str
    recovered: str = ""
    fallback_model: bool = False
    tool_calls: int = 0
    left_out: frozenset[str] = frozenset()


class LoopLimitError(Exception):
    """The model keeps calling tools."""


@dataclass
class _State:
    messages: list[ModelMessage]
    until: Deadline
    spent: Spent
    first: int = 0
    text: str = ""
    seen: set[str] = field(default_factory=set)
    results: list[tuple[ToolRequest, ToolResult]] = field(default_factory=list)
    calls: int = 0
    model: str = ""
    fallback: bool = False
    left_out: frozenset[str] = frozenset()


class Reasoner:
    """Answers by a model with tools. Stateless: one instance serves all runs."""

    def __init__(self, models: Sequence[ChatModel], limits: Limits) -> None:
        self._models = models
        self._limits = limits

    @property
    def available(self) -> bool:
        """Whether there is a model at all."""
        return bool(self._models)

    @property
    def name(self) -> str:
        """The name of the model that is asked first; empty where there is none."""
        return self._models[0].name if self._models else ""

    async def answer(
        self, task: Task, toolbox: Toolbox, listener: Listener, deadline: Deadline, spent: Spent
    ) -> Reasoned:
        """Run the loop; leave it for recovery in time. Never raises ModelError. `spent` is added to
        with each call, so that it holds also where this is cancelled.
        """
        left = deadline.remaining()
        reserve = min(self._limits.synthesis_max_s, left * self._limits.synthesis_share)
        state = _State(list(task.messages), deadline.slice(left, margin_s=reserve), spent)
        try:
            async with asyncio.timeout(state.until.remaining()):
                finish = await self._loop(task, state, toolbox, listener)
            return _reasoned(state, state.text, finish)
        except TimeoutError:
            why = "timeout"
        except LoopLimitError:
            why = "loop_limit"
        except ModelError as error:
            why = error.kind
        return await self._recover(task, state, listener, deadline, why)

    async def _loop(self, task: Task, state: _State, toolbox: Toolbox, listener: Listener) -> str:
        for number in range(self._limits.rounds):
            last = number + 1 == self._limits.rounds
            specs = () if last or state.calls >= self._limits.tool_calls else toolbox.specs
            state.text = ""
            done = await self._call(task, state, specs, listener)
            if not done.tool_calls:
                return done.finish
            if last or not specs:
                raise LoopLimitError
            if state.text.strip():
                listener.text("\n\n")
            await self._run_tools(state, done.tool_calls, toolbox, listener)
        raise LoopLimitError

    async def _run_tools(
        self, state: _State, calls: Sequence[ToolRequest], toolbox: Toolbox, listener: Listener
    ) -> None:
        keys = [f"{call.name}:{_canonical(call.arguments)}" for call in calls]
        if all(key in state.seen for key in keys):
            raise LoopLimitError
        state.seen.update(keys)
        state.messages.append(ModelMessage("assistant", state.text, tool_calls=tuple(calls)))
        budget = max(0, self._limits.tool_calls - state.calls)
        state.calls += len(calls)
        results = await asyncio.gather(
            *(self._run_tool(call, toolbox, listener) for call in calls[:budget])
        )
        for call, result in zip(calls, results, strict=False):
            state.messages.append(ModelMessage("tool", result.text, call_id=call.call_id))
            if result.ok:
                state.results.append((call, result))
        for call in calls[budget:]:
            state.messages.append(
                ModelMessage("tool", "No more tool calls are allowed.", call_id=call.call_id)
            )

    async def _run_tool(
        self, call: ToolRequest, toolbox: Toolbox, listener: Listener
    ) -> ToolResult:
        listener.tool_started(call)
        begun = time.monotonic()
        arguments = _parsed(call.arguments)
        if call.name not in {spec.name for spec in toolbox.specs}:
            known = ", ".join(spec.name for spec in toolbox.specs)
            result = ToolResult(f"There is no such tool. Tools: {known}.", "unknown tool", ok=False)
        elif arguments is None:
            result = ToolResult(
                "The arguments are not a JSON object. Call again with valid JSON.",
                "malformed arguments",
                ok=False,
            )
        else:
            result = await toolbox.call(call.name, arguments)
        listener.tool_finished(call, result, (time.monotonic() - begun) * 1000)
        return result

    async def _call(
        self, task: Task, state: _State, specs: Sequence[ToolSpec], listener: Listener
    ) -> Done:
        request = ModelRequest(
            messages=tuple(state.messages),
            tools=specs,
            schema=task.schema,
            temperature=task.temperature,
            max_output_tokens=task.max_output_tokens,
        )
        failure = ModelError("unavailable", "no model is configured")
        for index in range(state.first, len(self._models)):
            try:
                done = await self._attempts(index, request, state, listener)
            except ModelError as error:
                if state.text:
                    raise
                failure = error
                continue
            # A run stays with the model that answered: what failed would only fail again.
            state.first = index
            state.fallback = state.fallback or index > 0
            return done
        raise failure

    async def _attempts(
        self, index: int, request: ModelRequest, state: _State, listener: Listener
    ) -> Done:
        """Call one model; again only while nothing has been passed on, and nobody else is there to
        answer sooner.
        """
        others = len(self._models) - index - 1
        for attempt in range(self._limits.retries + 1):
            left = state.until.remaining()
            # A model that hangs must leave the next one the time to answer.
            silence = min(self._limits.call_timeout_s, left / 2 if others else left)
            try:
                return await self._once(self._models[index], request, state, listener, silence)
            except ModelError as error:
                if state.text or not error.retryable or attempt == self._limits.retries:
                    raise
                pause = 0.2 * 2**attempt if error.retry_after_s is None else error.retry_after_s
                if others and (error.kind == "timeout" or pause > _PATIENCE_S):
                    raise
                if pause >= state.until.remaining():
                    raise
                await asyncio.sleep(pause)
        raise ModelError("unavailable", "no attempt was made")

    async def _once(
        self,
        model: ChatModel,
        request: ModelRequest,
        state: _State,
        listener: Listener,
        silence_s: float,
    ) -> Done:
        stream = model.stream(request, silence_s)
        with state.spent.call(request) as call:
            async with aclosing(stream) as events:
                async for event in events:
                    if isinstance(event, Done):
                        call.done = event
                        state.model = event.model
                        state.left_out |= event.left_out
                        if not event.tool_calls and not state.text.strip():
                            raise ModelError("malformed", "the model gave an empty answer")
                        return event
                    call.heard += event.text
                    if isinstance(event, Text):
                        state.text += event.text
                        listener.text(event.text)
                    else:
                        listener.thinking(event.text)
            raise ModelError("cut", "the stream ended without an end")

    async def _recover(
        self, task: Task, state: _State, listener: Listener, deadline: Deadline, why: str
    ) -> Reasoned:
        """One synthesis over the successful tool results; else the text so far, if it is long
        enough.
        """
        partial = state.text
        if state.results and deadline.remaining() > 0:
            found = "\n\n".join(result.text for _, result in state.results)
            messages = [
                *task.messages,
                ModelMessage("user", f"{task.synthesis_request}\n\n{found}"),
            ]
            state.messages, state.text, state.until = messages, "", deadline
            if partial.strip():
                listener.text("\n\n")
            try:
                async with asyncio.timeout(deadline.remaining()):
                    await self._call(task, state, (), listener)
            except (TimeoutError, ModelError):
                pass
            if state.text.strip():
                return _reasoned(state, state.text, "recovered", why)
        if len(partial) >= PARTIAL_CHARS:
            return _reasoned(state, partial, "recovered", why)
        return _reasoned(state, None, "recovered", why)


def _reasoned(state: _State, text: str | None, finish: str, recovered: str = "") -> Reasoned:
    return Reasoned(
        text=text,
        finish=finish,
        model=state.model,
        recovered=recovered,
        fallback_model=state.fallback,
        tool_calls=state.calls,
        left_out=state.left_out,
    )


def _parsed(arguments: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _canonical(arguments: str) -> str:
    value = _parsed(arguments)
    return arguments if value is None else json.dumps(value, sort_keys=True, ensure_ascii=False)
