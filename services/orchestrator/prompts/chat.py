"""Conversation: memory first, knowledge where it helps."""

from __future__ import annotations

from services.orchestrator.prompts import shared
from services.orchestrator.prompts.branch import Branch, IntentPrompt


def _role(branch: Branch) -> list[str]:
    if branch.preferences or branch.reference_memory:
        return [
            branch.say(
                "你是一个有长期记忆的助手，下面是你记得的关于这位用户的内容。",
                "You are an assistant with a long memory; what you remember of this user follows.",
            )
        ]
    return [branch.say("你是一个乐于助人的助手。", "You are a helpful assistant.")]


def _task(branch: Branch) -> list[str]:
    lines = [branch.say("回复用户最新的一条消息。", "Reply to the user's latest message.")]
    if branch.reference_memory:
        lines.append(
            branch.say(
                "只有与问题有关时才使用记忆；被问到以前说过的事，按记忆回答并说明是什么时候说的。",
                "Use memory only where it bears on the question; asked about something said "
                "before, answer from "
                "memory and say when it was said.",
            )
        )
    if branch.evidence:
        lines.append(
            branch.say(
                "资料与问题有关时先依据资料，再用其他知识补充；无关时忽略资料。",
                "Where the sources bear on the question, answer from them first and add other "
                "knowledge after; "
                "ignore them otherwise.",
            )
        )
    return lines


def _form(branch: Branch) -> list[str]:
    return [*shared.citing(branch), *shared.without_sources(branch)]


PROMPT = IntentPrompt(role=_role, task=_task, form=_form)
