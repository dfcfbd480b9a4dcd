"""Routing without a model: what came with the message, then what it says, in both languages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common.unicode import mixed
from services.orchestrator.domain import TurnInput
from services.search.simplified import simplify

_RECALL = mixed(
    r"上次|上回|之前|以前|刚才|昨天|记得|还记不记得|我叫|我是谁|我的(名字|职业|工作|偏好|爱好)|"
    r"我(喜欢|住|说过|提过|跟你)|根据我的|按我|"
    r"\b(last time|earlier|previously|remember|my name|who am i|about me|my "
    r"(job|work|preference)s?|"
    r"i (told|said|mentioned|like|prefer)|do you know (me|my))\b",
    re.IGNORECASE,
)
_PLAN = mixed(
    r"(学习|阅读|复习|研究|训练|实施|项目)?(计划|规划|路线图?|路径)|(分|几)步(走|学|骤)|"
    r"\b(learning|reading|study) (plan|path)\b|\broadmap\b|\bsyllabus\b|\bcurriculum\b|"
    r"\bplan (for|to) (learn|read|study)",
    re.IGNORECASE,
)
# A plan is asked for where a verb of making governs the word: not where it is the subject, or
# one that is there already ("this plan", "the roadmap"), nor in a report of what somebody does.
_PLAN_REQUEST = mixed(
    r"(?<!正在)(?<!已经)(?<!我们)(?<!他们)(?<!如何)(?<!怎么)(?<!怎样)"
    r"(制定|制订|设计|安排|列出?|写|拟|生成|做|给[我他她]|给\S{0,4}?一|[来出要][一个份])(?![的了过好完])"
    r"((?![这那该此看讲说评改查总概归]|解释|分析|里的|中的)[^，。；！？,;!?\n]){0,24}?"
    r"(计划|规划|路线图?|学习路径)(?![中里内上的]|[^，。；！？,;!?\n]{0,20}(什么|哪|怎|多少|如何|是否))|"
    r"[帮替给为]我(规划|计划)|(规划|计划)一下|[帮替给为]我.{0,12}分.?步|"
    r"\b(make|create|give|draw|write|design|draft|build|prepare|propose|outline|generate|suggest|"
    r"need|want)\b( (?!this|that|these|those|the|your|of|about|in|from|on|whether|if)[\w-]+){0,6} "
    r"((learning|reading|study|training|revision) (plan|path)|roadmap|syllabus|curriculum|"
    r"plan (for|to) (learn|read|study))|"
    r"\bplan (out )?(my|our|a) (\w+ )?(learning|reading|study|studies)\b",
    re.IGNORECASE,
)
_SUMMARY = mixed(
    r"总结|概括|概述|摘要|导读|归纳|讲了什么[?？。]?$|主要内容|\bsummar(y|ise|ize|ies)\b|\boverview\b|\btl;"
    r"?dr\b|"
    r"what is (this|it) about",
    re.IGNORECASE,
)
_EXTRACT = mixed(
    r"(?<!如何)(?<!怎么)(?<!怎样)(提取|抽取|摘出|列出).{0,20}"
    r"(字段|信息|参数|数据|名称|日期|作者|指标)|"
    r"(^|[,.;:!\n，。；：！]\s*|[请我你您]\s*|\b(please|you|you to|me|and|then) )"
    r"(extract|pull out)\b",
    re.IGNORECASE,
)
# A question whose form is only polite asks for the thing itself.
_POLITE = mixed(
    r"(能不能|能否|可不可以|可以|可否|能)(麻烦)?[你您请帮给替为提抽列制]|"
    r"\b(can|could|would|will) you\b",
    re.IGNORECASE,
)
_ASKS = mixed(
    r"[?？]|[吗呢]$|^(what|how|why|which|who|where|when|does|do|is|are|did|should)\b",
    re.IGNORECASE,
)
_QUESTION = mixed(
    r"[?？]|什么|怎么|如何|为什么|为何|哪(个|些|里|种)|多少|几(个|种|次)|是否|能不能|吗$|"
    r"^(what|how|why|which|who|where|when|does|do|is|are|can|could|should|did)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Route:
    """The intent and why; `reason` is empty when the caller forced it."""

    intent: pb.Intent.ValueType
    reason: str


def is_recall(message: str) -> bool:
    """Whether a message asks for what was said or known before rather than for knowledge."""
    return bool(_RECALL.search(simplify(message)))


def route(turn: TurnInput) -> Route:
    """Decide the intent. Never fails; conversation is the last resort."""
    if turn.intent != pb.INTENT_UNSPECIFIED:
        return Route(turn.intent, "")
    message = simplify(turn.message.strip())
    if turn.response_schema is not None:
        if _PLAN.search(message):
            return Route(pb.INTENT_STRUCTURED_PLAN, "a schema and words for a plan")
        return Route(pb.INTENT_EXTRACT, "a schema")
    scoped = bool(turn.document_ids or turn.selected_text)
    if not _ASKS.search(message) or _POLITE.search(message):
        if _EXTRACT.search(message) and (scoped or turn.collection_id):
            return Route(pb.INTENT_EXTRACT, "words for extraction and a scope")
        if _PLAN_REQUEST.search(message) and not is_recall(message):
            return Route(pb.INTENT_STRUCTURED_PLAN, "a request for a plan")
    return in_prose(
        turn.message,
        documents=len(turn.document_ids),
        scoped=scoped,
        collection=bool(turn.collection_id),
    )


def in_prose(message: str, *, documents: int, scoped: bool, collection: bool) -> Route:
    """Decide among the intents that are answered in prose. `documents` were named; `scoped`: they
    or selected text were given; `collection`: there is one to search.
    """
    message = simplify(message.strip())
    if _SUMMARY.search(message) and documents == 1:
        return Route(pb.INTENT_PERSONALISED_SUMMARY, "words for a summary and one document")
    if scoped:
        return Route(pb.INTENT_DOCUMENT_QUESTION, "documents or selected text were given")
    if collection and _QUESTION.search(message) and not is_recall(message):
        return Route(pb.INTENT_DOCUMENT_QUESTION, "a question and a collection")
    return Route(pb.INTENT_CHAT, "nothing more specific")


def is_question(message: str) -> bool:
    """Whether a message asks something."""
    return bool(_QUESTION.search(simplify(message.strip())))
