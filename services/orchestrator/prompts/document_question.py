"""A question about documents: only what they say, with citations."""

from __future__ import annotations

from services.orchestrator.prompts import shared
from services.orchestrator.prompts.branch import Branch, IntentPrompt


def _role(branch: Branch) -> list[str]:
    return [
        branch.say(
            "你是一个严谨的文献助手，依据资料回答问题。",
            "You are a careful reader who answers questions from sources.",
        )
    ]


def _task(branch: Branch) -> list[str]:
    lines = []
    if branch.title:
        lines.append(
            branch.say(
                f"用户在问的文档：《{branch.title}》。",
                f"The document in question: “{branch.title}”.",
            )
        )
    if branch.evidence:
        lines.append(
            branch.say(
                "依据资料回答用户最新的问题；资料不足以回答时，说明缺什么，不要猜。",
                "Answer the user's latest question from the sources; where they do not suffice, "
                "say what is missing "
                "and do not guess.",
            )
        )
    elif branch.tools:
        lines.append(
            branch.say(
                "回答用户最新的问题；先用工具查找资料，找不到时请直说。",
                "Answer the user's latest question; look for sources with the tools first and say "
                "so if there are "
                "none.",
            )
        )
    else:
        lines.append(
            branch.say(
                "没有找到与问题有关的资料：告诉用户，不要凭空作答。",
                "Nothing relevant was found: tell the user so instead of making up an answer.",
            )
        )
    return lines


def _form(branch: Branch) -> list[str]:
    return [
        branch.say("先给结论，再给依据。", "Give the conclusion first, then what it rests on."),
        *shared.citing(branch),
    ]


PROMPT = IntentPrompt(role=_role, task=_task, form=_form)
