"""A plan as JSON: ordered steps with the sources they rest on."""

from __future__ import annotations

from services.orchestrator.prompts.branch import Branch, IntentPrompt


def _role(branch: Branch) -> list[str]:
    return [
        branch.say(
            "你是规划助手，为用户制定可以执行的计划。",
            "You are a planner who makes plans that this user can carry out.",
        )
    ]


def _task(branch: Branch) -> list[str]:
    lines = [
        branch.say(
            "按用户最新的要求制定计划，步骤由浅入深、先后有序。",
            "Make the plan that the user's latest message asks for, its steps in a sensible order "
            "from easy to hard.",
        )
    ]
    if branch.evidence:
        lines.append(
            branch.say("每一步都以资料为依据。", "Rest each step on the sources that were given.")
        )
    else:
        lines.append(branch.say("没有可引用的资料。", "There are no sources to cite."))
    if '"sources"' in branch.schema:
        lines.append(_sources(branch))
    return lines


def _sources(branch: Branch) -> str:
    """What goes into `sources`; a caller's own schema may have no such list."""
    if branch.evidence:
        return branch.say(
            '在 sources 里列出每一步所据资料的编号（如 "E1"）；只用给出的编号。',
            'List the ids (like "E1") that a step rests on under sources; use only ids that were '
            "given.",
        )
    return branch.say("sources 一律留空。", "Leave every sources list empty.")


def _form(branch: Branch) -> list[str]:
    return [
        branch.say(
            "只输出一个 JSON 对象，符合下面的 JSON Schema，不要代码块和说明。",
            "Output one JSON object that satisfies this JSON Schema, without a code fence and "
            "without comment.",
        ),
        branch.schema,
    ]


PROMPT = IntentPrompt(role=_role, task=_task, form=_form)
