"""From an intent's step names to the steps themselves, and the two ways to run them."""

from __future__ import annotations

from dataclasses import dataclass

from services.orchestrator.context_builder import ContextBuilder
from services.orchestrator.engine import Step, StepFallback, StepRun, run_stages, run_step
from services.orchestrator.intents import INTENTS, STEP_LABELS, Stages
from services.orchestrator.ports import Knowledge, Memory
from services.orchestrator.prompts.assemble import Budget, Prompt
from services.orchestrator.reasoner.loop import Reasoner
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.steps import route
from services.orchestrator.steps.load_memory import LoadMemory
from services.orchestrator.steps.readings import FindReadings
from services.orchestrator.steps.reason import Reason
from services.orchestrator.steps.retrieve import Retrieve
from services.orchestrator.steps.save_memory import SaveMemory
from services.orchestrator.steps.verify import Verify
from services.orchestrator.turn import Turn

_ROUTE_S = 1.0
_READINGS_S = 3.0
_AFTER_REASON_S = 3.0


@dataclass(frozen=True)
class Pipeline:
    """Runs turns. The steps are looked up by name; their order stands in `intents.py`."""

    steps: dict[str, Step]
    context: ContextBuilder

    async def gather(self, turn: Turn, *, announce: bool = True) -> Prompt:
        """Route, gather memory and evidence, make the prompt. Calls no model and stores nothing."""
        await run_step(self.steps["route"], turn)
        await run_stages(self._stages(INTENTS[turn.intent].gather), turn)
        return self.context.build(turn, announce=announce)

    async def run(self, turn: Turn) -> None:
        """The whole turn."""
        await self.gather(turn)
        await run_stages(self._stages(INTENTS[turn.intent].answer), turn)

    def _stages(self, names: Stages) -> list[list[Step]]:
        return [[self.steps[name] for name in stage] for stage in names]


def build(
    settings: OrchestratorSettings, memory: Memory, knowledge: Knowledge, reasoner: Reasoner
) -> Pipeline:
    """The pipeline over these dependencies."""
    budget = Budget(
        total=settings.prompt_tokens,
        evidence=settings.evidence_tokens,
        history=settings.history_tokens,
    )
    load = LoadMemory(memory, settings.memory_tokens, budget)
    retrieve = Retrieve(knowledge, settings.evidence_tokens)
    readings = FindReadings(memory)
    reason = Reason(reasoner, knowledge, memory)
    verify = Verify(knowledge)
    save = SaveMemory(memory)
    made = [
        _step("route", _ROUTE_S, route.run),
        _step("load_memory", settings.memory_timeout_s, load.run, load.fallback),
        _step("retrieve", settings.retrieve_timeout_s, retrieve.run, retrieve.fallback),
        _step("readings", _READINGS_S, readings.run, readings.fallback),
        _step(
            "reason",
            settings.run_timeout_s,
            reason.run,
            reason.fallback,
            reserve_s=_AFTER_REASON_S,
        ),
        _step("verify", settings.verify_timeout_s, verify.run, verify.fallback, reserve_s=1.0),
        _step("save_memory", settings.save_timeout_s, save.run, save.fallback),
    ]
    return Pipeline(
        steps={step.name: step for step in made},
        context=ContextBuilder(budget, tools=reasoner.available),
    )


def _step(
    name: str,
    max_s: float,
    run: StepRun,
    fallback: StepFallback | None = None,
    reserve_s: float = 0.0,
) -> Step:
    return Step(
        name=name,
        labels=STEP_LABELS[name],
        max_s=max_s,
        run=run,
        fallback=fallback,
        reserve_s=reserve_s,
    )
