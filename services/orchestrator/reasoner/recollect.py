"""Answers from memory without a model: profile facts first, then what was said,
quoted and dated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from services.common.unicode import mixed
from services.orchestrator import sentences
from services.orchestrator.domain import Language, LoadedMemory, MemoryFact, MemoryNote, TurnInput
from services.orchestrator.reasoner.scoring import coverage
from services.orchestrator.router import is_question, is_recall
from services.search.simplified import simplify

_QUOTE_CHARS = 160
_LEAST_COVERAGE = 0.12
_PROFILE_LINES = 8
_SHORT = re.compile(r"简短|简洁|精简|短一?点|少说|short|brief|concise|terse", re.IGNORECASE)
_DECISION = mixed(
    r"决定|就用|就选|选了|选用|选定|定了|定下|改用|采用|换成|最后用|确定用|"
    r"\b(decid\w*|settl\w+|chose|choose|go(ing)? with|went with|pick(ed)?|switch(ed)? to|use)\b",
    re.IGNORECASE,
)
_ABOUT_ME = mixed(
    r"(了解|知道|记得|清楚)(关于)?我(的)?(什么|多少|哪些|一些|些什么|情况|吗|[?？]|$)|对我.{0,4}(了解|知道|印象)|"
    r"关于我.{0,6}(什么|哪些|多少)|我是个?(什么样|怎样)的人|"
    r"\b(know|remember|learned|have) (anything |something |all |everything )?(of|about) me\b|"
    r"\btell me about (me|myself)\b",
    re.IGNORECASE,
)
_SELF = (
    ("The user's", "Your"),
    ("User's", "Your"),
    ("The user is", "You are"),
    ("The user", "You"),
)


@dataclass(frozen=True)
class _Topic:
    """What a question may ask of the user: the attributes that hold it, and how users state it."""

    asked: re.Pattern[str]
    attributes: frozenset[str]
    stated: re.Pattern[str]
    zh: str
    en: str


def _topic(asked: str, attributes: str, stated: str, zh: str, en: str) -> _Topic:
    return _Topic(
        mixed(asked, re.IGNORECASE),
        frozenset(attributes.split()),
        mixed(stated, re.IGNORECASE),
        zh,
        en,
    )


def _topics() -> tuple[_Topic, ...]:
    return (
        _topic(
            r"我叫|名字|称呼|我是谁|怎么叫我|my name|who am i|call me|know me",
            "name nickname full_name",
            r"我叫|我是|叫我|我的名字|花名|my name|call me|\bi am\b|\bi'm\b",
            "你叫{v}",
            "Your name is {v}",
        ),
        _topic(
            r"职业|做什么(的|工作)|干什么的|我的工作|我是谁|什么工作|岗位|行业|"
            r"my (job|trade|occupation|profession|work|role)|what do i do|who am i",
            "occupation job profession role trade",
            r"我是|职业|工作|从事|我做|工程师|设计师|老师|医生|i work|i am an?\b|i'm an?\b|my job",
            "你的职业是{v}",
            "You work as: {v}",
        ),
        _topic(
            r"偏好|习惯|怎么回答|怎样.{0,4}回答|回答.{0,6}(风格|方式|要求|喜欢)|喜欢.{0,8}回答|简"
            r"短|"
            r"prefer|style|how .{0,20}(answer|reply|respond)|short answers",
            "answer_style preference style reply_style answer_length tone format",
            r"回答|回复|简短|简洁|短一?点|answer|repl(y|ies)|short|brief|concise",
            "你希望我的回答：{v}",
            "How you want answers: {v}",
        ),
        _topic(
            r"住(在)?(哪|什么)|哪(个|座)?城市|住哪|where (do|am) i (live|based)|my city",
            "city location residence home",
            r"住在|我在|搬到|i live|i moved|based in",
            "你住在{v}",
            "You live in {v}",
        ),
        _topic(
            r"在哪(里|家|儿)?.{0,4}(工作|上班)|公司|where do i work|my (employer|company)",
            "employer company",
            r"在.{1,20}(工作|上班)|入职|跳槽|i work (at|for)|joined",
            "你在{v}工作",
            "You work at {v}",
        ),
        _topic(
            r"我喜欢|我爱|爱好|兴趣|what do i (like|enjoy)|my (hobb|interest|favou?rite)",
            "likes hobby hobbies interests favorite favourite",
            r"喜欢|爱好|感兴趣|i (like|love|enjoy)|favou?rite",
            "你喜欢{v}",
            "You like {v}",
        ),
    )


def wants_short(memory: LoadedMemory) -> bool:
    """Whether the user asked for short answers."""
    stated = [fact.value + fact.statement for fact in memory.facts if fact.preference]
    return any(_SHORT.search(simplify(text)) for text in stated)


def recollect(turn: TurnInput, memory: LoadedMemory) -> str:
    """What memory says to the message, empty where it says nothing."""
    lines = _about_user(turn, memory)
    if not lines and _ABOUT_ME.search(simplify(turn.message)):
        lines = _everything(turn, memory)
    if not lines:
        lines = _said(turn, memory)
    return "\n".join(dict.fromkeys(lines))


def _about_user(turn: TurnInput, memory: LoadedMemory) -> list[str]:
    lines: list[str] = []
    for topic in _topics():
        if not topic.asked.search(simplify(turn.message)):
            continue
        facts = [fact for fact in memory.facts if fact.attribute in topic.attributes]
        if facts:
            lines += [_fact_line(fact, topic, turn.language) for fact in facts]
            lines += _since(topic, facts, memory.notes, turn)
        else:
            lines += _stated(topic, memory.notes, turn)
    return lines


def _everything(turn: TurnInput, memory: LoadedMemory) -> list[str]:
    """The profile, in the order of memory; before there is one, what the user last said."""
    lines = []
    for fact in memory.facts[:_PROFILE_LINES]:
        topic = next((t for t in _topics() if fact.attribute in t.attributes), None)
        lines.append(
            _fact_line(fact, topic, turn.language)
            if topic
            else _to_you(fact.statement, turn.language)
        )
    told = [
        note
        for note in _undigested(memory.notes)
        if not is_question(note.text) and not _holds(note.text, memory.facts)
    ][: 1 if lines else 2]
    return lines + [_quoted(_excerpt(turn.message, n.text), n.when, turn) for n in told]


def _undigested(notes: Sequence[MemoryNote]) -> list[MemoryNote]:
    return [note for note in notes if note.layer == "fresh_turns" and note.text.strip()]


def _holds(text: str, facts: Sequence[MemoryFact]) -> bool:
    """Whether a text states one of these facts, and so was read for them already."""
    folded = text.casefold()
    return any(fact.value and fact.value.casefold() in folded for fact in facts)


def _since(
    topic: _Topic, facts: Sequence[MemoryFact], notes: Sequence[MemoryNote], turn: TurnInput
) -> list[str]:
    """What the user said of it after the profile was made: it may have changed since."""
    newer = [note for note in _undigested(notes) if not _holds(note.text, facts)]
    return _stated(topic, newer, turn)


def _fact_line(fact: MemoryFact, topic: _Topic, language: Language) -> str:
    if language == "zh":
        return topic.zh.format(v=fact.value) + "。"
    return topic.en.format(v=fact.value) + "."


def _stated(topic: _Topic, notes: Sequence[MemoryNote], turn: TurnInput) -> list[str]:
    """The newest sentence in which the user stated it, for facts that are not extracted yet."""
    for note in notes:
        for sentence in sentences.split(note.text):
            if topic.stated.search(simplify(sentence.text)) and sentence.text[-1] not in "?？":
                return [_quoted(sentence.text, note.when, turn)]
    return []


def _said(turn: TurnInput, memory: LoadedMemory) -> list[str]:
    notes = list(memory.notes)
    ranked = coverage(turn.message, [note.text for note in notes])
    chosen = [notes[s.index] for s in ranked if s.score >= _LEAST_COVERAGE][:2]
    if not chosen and is_recall(turn.message):
        # Notes have passed memory's own gate: they are about the question, if in other words.
        chosen = [note for note in notes if note.layer == "episodes" and note.score > 0][:1]
    if chosen:
        # What a talk settled on is often said without naming its subject again.
        same_talk = [n for n in notes if n.session_id and n.session_id == chosen[0].session_id]
        decided = [n for n in same_talk if _DECISION.search(simplify(n.text)) and n not in chosen]
        chosen += decided[: 3 - len(chosen)]
    else:
        lines = [f.statement for f in memory.facts]
        best = coverage(turn.message, lines)
        return [_to_you(lines[s.index], turn.language) for s in best if s.score >= 0.3][:2]
    chosen.sort(key=lambda n: n.when.timestamp() if n.when else 0.0)
    return [_quoted(_excerpt(turn.message, n.text), n.when, turn) for n in chosen]


def _excerpt(question: str, text: str) -> str:
    """The whole of a short note; of a long one the sentence that fits best, and
    the one after it.
    """
    if len(text) <= _QUOTE_CHARS:
        return " ".join(text.split())
    parts = [s.text for s in sentences.split(text)]
    best = coverage(question, parts)[0].index
    return " ".join(parts[best : best + 2])[: _QUOTE_CHARS * 2]


def _quoted(text: str, when: datetime | None, turn: TurnInput) -> str:
    day = when.astimezone(ZoneInfo(turn.time_zone)).date().isoformat() if when else ""
    if turn.language == "zh":
        return f"根据记忆{f'（{day}）' if day else ''}：{text}"
    return f"From memory{f' ({day})' if day else ''}: {text}"


def _to_you(statement: str, language: Language) -> str:
    if statement.startswith("用户"):
        return ("你" if language == "zh" else "You: ") + statement[2:]
    for third, second in _SELF:
        if statement.startswith(third):
            return second + statement[len(third) :]
    return statement
