"""A summary of one document, related to what the user read before, or a guide for
a first reading.
"""

from __future__ import annotations

from services.orchestrator.prompts import shared
from services.orchestrator.prompts.branch import Branch, IntentPrompt


def _role(branch: Branch) -> list[str]:
    return [
        branch.say(
            "你是一名陪读助手，为这位读者总结文献。",
            "You are a companion who reads along with this reader and summarises what they read.",
        )
    ]


def _task(branch: Branch) -> list[str]:
    title = branch.title or branch.say("当前文档", "current document")
    if not branch.evidence:
        return [
            branch.say(
                f"《{title}》的内容没有取到：告诉用户无法总结，不要凭标题编写。",
                f"The text of “{title}” is not available: tell the user so and write nothing from "
                "the title alone.",
            )
        ]
    lines = [branch.say(f"总结《{title}》。", f"Summarise “{title}”.")]
    if branch.readings:
        lines.append(
            branch.say(
                "把它和读者以前读过的相近文献联系起来：异同、承接、值得回看之处；点名这些文献。",
                "Relate it to the similar documents this reader read earlier, by name: what is "
                "alike, what differs, "
                "what is worth another look.",
            )
        )
    elif branch.first_reading:
        lines.append(
            branch.say(
                "这是读者第一次阅读，没有以前的文献可联系：给出结构化导读——背景、问题、方法、"
                "结论、先读哪里。",
                "This is the reader's first reading and there is nothing earlier to relate it to: "
                "give a structured "
                "guide with background, question, method, findings and where to begin.",
            )
        )
    else:
        lines.append(
            branch.say(
                "只总结文档本身：背景、问题、方法、结论；不要提读者以前读过什么。",
                "Summarise the document alone: background, question, method, findings; say "
                "nothing about what the "
                "reader read before.",
            )
        )
    return lines


def _form(branch: Branch) -> list[str]:
    if not branch.evidence:
        return []
    return [
        branch.say(
            "用小标题分段，每段两到四句。", "Use short headings, two to four sentences under each."
        ),
        *shared.citing(branch),
    ]


PROMPT = IntentPrompt(role=_role, task=_task, form=_form)
