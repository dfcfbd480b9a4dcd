"""Fields by schema, each with the evidence it rests on."""

from __future__ import annotations

from services.orchestrator.prompts.branch import Branch, IntentPrompt


def _role(branch: Branch) -> list[str]:
    return [
        branch.say(
            "你是信息提取助手，提取要准确。",
            "You are an extractor of information, exact in every word.",
        )
    ]


def _task(branch: Branch) -> list[str]:
    if branch.evidence:
        return [
            branch.say(
                "提取用户最新消息要的字段；值照抄资料里的写法，资料里没有的用 null 或空，"
                "不要推测。",
                "Extract the fields that the user's latest message asks for; copy values as the "
                "sources write them, "
                "use null or empty for what they do not say, and infer nothing.",
            ),
            branch.say(
                'schema 里有证据字段时，填资料编号（如 "E1"）；只用给出的编号。',
                'Where the schema has an evidence field, give source ids (like "E1"); '
                "use only ids that were given.",
            ),
        ]
    return [
        branch.say(
            "没有另附资料：只从用户最新的消息本身提取字段，没有的用 null 或空。",
            "There are no other sources: extract the fields from the user's latest message alone, "
            "null or empty "
            "where it says nothing.",
        )
    ]


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
