"""reason: the answer, by a model or without one. It knows nothing of where memory and evidence
come from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common import errors
from services.common.deadlines import Deadline
from services.common.errors import DomainError
from services.orchestrator import budget, citations
from services.orchestrator.context_builder import recommendations, schema_of, uses_tools
from services.orchestrator.engine import Failure, Outcome
from services.orchestrator.intents import INTENTS
from services.orchestrator.ports import Knowledge, Memory
from services.orchestrator.reasoner import extractive, rules, schemas, structured
from services.orchestrator.reasoner.loop import Reasoned, Reasoner, Task, ToolResult
from services.orchestrator.reasoner.model import ModelMessage, ToolRequest
from services.orchestrator.reasoner.spent import Spent
from services.orchestrator.tools import RunTools
from services.orchestrator.turn import Turn

_MARGIN_S = 0.3
_CALL_NOTICE_CHARS = 4_000


# Why the plan was left where the provider is away or busy, not the input at fault: the same run may
# succeed later. Kinds of a ModelError, and the reason of a step that took too long.
_AWAY = frozenset({"timeout", "rate_limited", "unavailable", "DEADLINE_EXCEEDED"})


# What a caller calls the parameters of a model call.
_SETTINGS = {"temperature": "temperature", "max_tokens": "max_output_tokens"}


class RunFailedError(Exception):
    """There is no answer, and no step can make up for it. `failure` is what the caller is told."""

    def __init__(self, failure: DomainError) -> None:
        super().__init__(str(failure))
        self.failure = failure


@dataclass(frozen=True)
class _Events:
    """Passes on what the model does as events; text only where it is shown as it comes."""

    turn: Turn
    show_text: bool

    def text(self, piece: str) -> None:
        if self.show_text:
            self.turn.log.emit(pb.TextDelta(text=piece))

    def thinking(self, piece: str) -> None:
        self.turn.log.emit(pb.ThinkingDelta(text=piece))

    def tool_started(self, call: ToolRequest) -> None:
        self._tool(call, pb.TOOL_CALL_STATE_STARTED, "", 0.0)

    def tool_finished(self, call: ToolRequest, result: ToolResult, ms: float) -> None:
        state = pb.TOOL_CALL_STATE_DONE if result.ok else pb.TOOL_CALL_STATE_FAILED
        self._tool(call, state, result.summary, ms)

    def _tool(
        self, call: ToolRequest, state: pb.ToolCallState.ValueType, summary: str, ms: float
    ) -> None:
        self.turn.log.emit(
            pb.ToolCall(
                call_id=call.call_id,
                tool=call.name,
                arguments_json=call.arguments[:_CALL_NOTICE_CHARS],
                state=state,
                summary=summary[:500],
                ms=ms,
            )
        )


@dataclass(frozen=True)
class Reason:
    """Answers from `turn.prompt`. Memory and search reach it only as that prompt and as tools."""

    reasoner: Reasoner
    knowledge: Knowledge
    memory: Memory

    async def run(self, turn: Turn) -> Outcome:
        """Set `turn.answer`. Raises RunFailedError where no answer is possible."""
        is_structured = INTENTS[turn.intent].structured
        if not self.reasoner.available or not turn.model_allowed:
            (_degrade_no_llm if turn.model_allowed else _degrade_budget)(turn)
            if is_structured:
                await self._rule_json(turn, "extractive")
            else:
                _extract(turn, "extractive")
            return Outcome(counts=_counts(turn, None))
        window = Deadline(turn.deadline.at).slice(float("inf"), margin_s=_MARGIN_S)
        result = await (self._json if is_structured else self._text)(turn, window)
        return Outcome(
            status=pb.STEP_STATUS_FALLBACK if result.recovered else pb.STEP_STATUS_OK,
            counts=_counts(turn, result),
            message=result.recovered,
        )

    async def fallback(self, turn: Turn, failure: Failure) -> Outcome:
        """Whatever went wrong, there is still an answer from what was gathered."""
        _recovered(turn, failure.reason)
        if INTENTS[turn.intent].structured:
            await self._rule_json(turn, "recovered", failure.reason)
        else:
            _extract(turn, "recovered")
        return Outcome(status=pb.STEP_STATUS_FALLBACK, message=failure.message)

    async def _text(self, turn: Turn, window: Deadline) -> Reasoned:
        result = await self._ask(turn, _messages(turn), window, show_text=True)
        if result.text is None:
            _recovered(turn, result.recovered)
            _extract(turn, "recovered")
        else:
            if result.recovered:
                _recovered(turn, result.recovered)
            _finish(turn, result.text, result.finish)
        return result

    async def _json(self, turn: Turn, window: Deadline) -> Reasoned:
        schema = schema_of(turn)
        messages = _messages(turn)
        result = await self._ask(turn, messages, window, show_text=False)
        parsed = await structured.parse(result.text or "", schema)
        if not parsed.ok and result.text is not None:
            problems = "\n".join(parsed.errors)
            messages += [
                ModelMessage("assistant", result.text),
                ModelMessage("user", _repair_request(turn, problems)),
            ]
            result = await self._ask(turn, messages, window, show_text=False)
            parsed = await structured.parse(result.text or "", schema)
        if parsed.ok:
            _finish_json(turn, parsed.value, result.finish)
        else:
            why = result.recovered or "invalid_json"
            _recovered(turn, why)
            await self._rule_json(turn, "recovered", why)
        return result

    async def _rule_json(self, turn: Turn, finish: str, why: str = "") -> None:
        """JSON by rules; a schema that rules cannot satisfy ends the run with a clear reason."""
        schema = schema_of(turn)
        own = turn.input.response_schema is None
        if turn.intent == pb.INTENT_STRUCTURED_PLAN:
            value = rules.plan(turn.input, turn.evidence)
        else:
            value = rules.fields(turn.input, turn.evidence, schema, own)
        (problems,) = await schemas.problems([value], schema)
        if problems:
            raise RunFailedError(self._no_json(turn, why, f"by rules: {problems[0]}"))
        _finish_json(turn, value, finish)

    def _no_json(self, turn: Turn, why: str, problem: str) -> DomainError:
        """What to tell the caller; `why` is why a model's plan was left, empty without a model."""
        if not turn.model_allowed:
            return errors.budget_exhausted(budget.LAYER)
        if not self.reasoner.available:
            # A matter of how the service is set up: waiting will not help.
            return errors.failed_precondition(
                "no_llm", f"This schema needs a language model, and none is configured; {problem}"
            )
        if why in _AWAY:
            return errors.model_unavailable(
                self.reasoner.name, message=f"The model did not answer ({why}); {problem}"
            )
        return DomainError(
            "MODEL_FAILED",
            f"The model gave no JSON that satisfies the schema ({why}); {problem}",
            metadata={"model": self.reasoner.name},
        )

    async def _ask(
        self, turn: Turn, messages: list[ModelMessage], window: Deadline, *, show_text: bool
    ) -> Reasoned:
        asked = turn.input
        task = Task(
            messages=messages,
            synthesis_request=_synthesis_request(turn),
            schema=schema_of(turn) if INTENTS[turn.intent].structured else None,
            temperature=asked.temperature,
            max_output_tokens=asked.max_output_tokens,
        )
        toolbox = RunTools(turn, self.knowledge, self.memory, offered=uses_tools(turn))
        spent = Spent()
        try:
            result = await self.reasoner.answer(
                task, toolbox, _Events(turn, show_text), window, spent
            )
        finally:
            # Also what a cancelled call has used is used.
            _account(turn, spent)
        turn.model = result.model
        if result.fallback_model:
            turn.degrade(
                common_pb2.DEGRADATION_KIND_FALLBACK_MODEL,
                "reason",
                "the second provider answered",
                model=result.model,
            )
        _degrade_ignored(turn, result)
        return result


def _messages(turn: Turn) -> list[ModelMessage]:
    assert turn.prompt is not None
    return [ModelMessage(message.role, message.text) for message in turn.prompt.messages]


def _account(turn: Turn, spent: Spent) -> None:
    assert turn.prompt is not None
    usage = turn.usage
    usage.prompt_tokens += spent.prompt_tokens
    usage.completion_tokens += spent.completion_tokens
    usage.estimated = usage.estimated or spent.estimated
    usage.memory_tokens = turn.prompt.tokens.memory
    usage.evidence_tokens = turn.prompt.tokens.evidence


def _finish(turn: Turn, text: str, finish: str) -> None:
    checked = citations.check(text.strip(), turn.evidence)
    if checked.dropped:
        turn.degrade(
            common_pb2.DEGRADATION_KIND_CITATION_DROPPED,
            "reason",
            "the answer cited sources that were not given; these citations were removed",
            ids=",".join(checked.dropped[:20]),
        )
    _set_answer(turn, checked.text, finish, list(checked.citations))


def _finish_json(turn: Turn, value: object, finish: str) -> None:
    kept, dropped = structured.check_sources(value, turn.evidence)
    if dropped:
        turn.degrade(
            common_pb2.DEGRADATION_KIND_CITATION_DROPPED,
            "reason",
            "the answer cited sources that were not given; these citations were removed",
            ids=",".join(dropped[:20]),
        )
    text = json.dumps(kept, ensure_ascii=False, indent=2)
    turn.log.emit(pb.TextDelta(text=text))
    _set_answer(turn, text, finish, structured.citations(text, kept, turn.evidence), is_json=True)


def _extract(turn: Turn, finish: str) -> None:
    text = extractive.answer(
        turn.input, turn.intent, turn.memory, turn.evidence, turn.readings, turn.title
    )
    if turn.log.text:
        turn.log.emit(pb.TextDelta(text="\n\n"))
    turn.log.emit(pb.TextDelta(text=text))
    _finish(turn, text, finish)


def _set_answer(
    turn: Turn, text: str, finish: str, cited: list[pb.Citation], *, is_json: bool = False
) -> None:
    turn.answer = pb.Answer(
        text=text,
        citations=cited,
        evidence=turn.evidence,
        memories=turn.memory.items,
        json=text if is_json else "",
        recommendations=recommendations(turn),
        finish_reason=finish or "stop",
    )


def _recovered(turn: Turn, why: str) -> None:
    zh = turn.input.language == "zh"
    turn.degrade(
        common_pb2.DEGRADATION_KIND_RECOVERED,
        "reason",
        "模型没有正常答完，答案由已取得的内容整理而成"
        if zh
        else "the model did not finish: the answer was made from what had been gathered",
        reason=why,
    )


def _degrade_no_llm(turn: Turn) -> None:
    zh = turn.input.language == "zh"
    turn.degrade(
        common_pb2.DEGRADATION_KIND_NO_LLM,
        "reason",
        "没有配置语言模型，答案摘自资料和记忆"
        if zh
        else "no language model is configured: the answer is made of extracts",
    )


def _degrade_budget(turn: Turn) -> None:
    zh = turn.input.language == "zh"
    turn.degrade(
        common_pb2.DEGRADATION_KIND_BUDGET_STOPPED,
        "reason",
        "今天的模型用量已用完，答案摘自资料和记忆"
        if zh
        else "today's budget of the model is used up: the answer is made of extracts",
        layer=budget.LAYER,
    )


def _degrade_ignored(turn: Turn, result: Reasoned) -> None:
    """Say which of the caller's settings the model refused. A schema is none of them: the answer is
    held to it whether the provider helps or not.
    """
    given = {
        "temperature": turn.input.temperature,
        "max_tokens": turn.input.max_output_tokens,
    }
    ignored = [name for name, value in given.items() if value is not None]
    ignored = [_SETTINGS[name] for name in ignored if name in result.left_out]
    if ignored:
        turn.degrade(
            common_pb2.DEGRADATION_KIND_PARAMETER_IGNORED,
            "reason",
            "模型不接受这些参数，按它的默认值回答"
            if turn.input.language == "zh"
            else "the model refused these parameters: answered with its defaults",
            parameters=",".join(ignored),
        )


def _synthesis_request(turn: Turn) -> str:
    if turn.input.language == "zh":
        return "不要再调用工具。只根据下面已经查到的内容回答上面的问题，并照样标注编号："
    return (
        "Call no more tools. Answer the question above from what was found below alone, "
        "citing ids as before:"
    )


def _repair_request(turn: Turn, problems: str) -> str:
    if turn.input.language == "zh":
        return f"这个 JSON 不符合要求：\n{problems}\n只输出改正后的完整 JSON 对象。"
    return (
        f"This JSON does not satisfy the schema:\n{problems}\n"
        "Output the corrected JSON object only."
    )


def _counts(turn: Turn, result: Reasoned | None) -> dict[str, str]:
    counts = {"citations": str(len(turn.answer.citations) if turn.answer else 0)}
    if result is not None:
        counts |= {"tool_calls": str(result.tool_calls), "model": result.model}
    return counts
