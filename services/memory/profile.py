# ruff: noqa: E501 - tables read better with one entry a line
"""The profile: attribute registry, and how a new statement meets the facts that are there.

Facts are bi-temporal: valid time (from/to) says when something was true, recorded time when we knew.
Pure: `plan` takes the timeline of an attribute and gives back what is to be written.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Final

from services.memory import script
from services.memory.domain import Candidate, Cardinality, Fact, FactKind, FactState
from services.memory.ending import ends
from services.memory.keys import note_key, plain_key, value_key
from services.memory.safety import may_be_followed
from services.search.simplified import spellings

_ONE: Final = frozenset(
    [
        "name",
        "nickname",
        "age",
        "birthday",
        "gender",
        "occupation",
        "employer",
        "school",
        "city",
        "hometown",
        "country",
        "time_zone",
        "marital_status",
        "answer_length",
        "answer_language",
        "answer_tone",
        "call_me",
        "work_city",
        "department",
        "team",
        "role",
        "native_language",
        "current_project",
    ]
)
_PREFERENCE: Final = frozenset(
    ["answer_length", "answer_language", "answer_tone", "answer_format", "call_me", "instruction"]
)
_OPPOSITES: Final = {"likes": "dislikes", "dislikes": "likes"}
_ALIASES: Final = {
    "job": "occupation", "profession": "occupation", "job_title": "occupation", "职业": "occupation",
    "工作": "occupation", "职位": "occupation", "company": "employer", "works_at": "employer",
    "workplace": "employer", "公司": "employer", "work": "employer", "works_for": "employer",
    "lives_in": "city", "location": "city", "residence": "city", "home_city": "city", "居住地": "city",
    "城市": "city", "住": "city", "from": "hometown", "origin": "hometown", "老家": "hometown",
    "speaks": "language", "languages": "language", "会说": "language", "like": "likes", "喜好": "likes",
    "喜欢": "likes", "love": "likes", "loves": "likes", "dislike": "dislikes", "hates": "dislikes",
    "不喜欢": "dislikes", "讨厌": "dislikes", "姓名": "name", "名字": "name", "user_name": "name",
    "full_name": "name", "年龄": "age", "生日": "birthday", "hobbies": "hobby", "爱好": "hobby",
    "skills": "skill", "pets": "pet", "宠物": "pet", "昵称": "nickname", "花名": "nickname",
    "response_length": "answer_length", "verbosity": "answer_length", "reply_length": "answer_length",
    "response_language": "answer_language", "reply_language": "answer_language",
    "tone": "answer_tone", "answer_style": "answer_length", "response_style": "answer_length",
    "format": "answer_format", "response_format": "answer_format",
}  # fmt: skip
_LABELS: Final = {
    "name": ("名字", "name"), "nickname": ("花名", "nickname"), "age": ("年龄", "age"),
    "birthday": ("生日", "birthday"), "occupation": ("职业", "occupation"),
    "employer": ("工作单位", "employer"), "school": ("学校", "school"), "city": ("居住地", "city"),
    "hometown": ("家乡", "hometown"), "language": ("会说的语言", "language"), "likes": ("喜欢", "likes"),
    "dislikes": ("不喜欢", "dislikes"), "pet": ("宠物", "pet"), "skill": ("技能", "skill"),
    "hobby": ("爱好", "hobby"), "uses": ("在用", "uses"), "learning": ("在学", "learning"),
    "decision": ("决定", "decision"), "answer_length": ("回答长短", "answer length"),
    "answer_language": ("回答语言", "answer language"), "answer_tone": ("回答语气", "answer tone"),
    "answer_format": ("回答格式", "answer format"), "call_me": ("称呼", "form of address"),
    "instruction": ("要求", "wish"), "work_city": ("工作地点", "place of work"),
}  # fmt: skip

# Words that questions about an attribute use and its statements do not.
_QUESTIONS: Final = {
    "name": "叫什么 called who am i 我是谁", "city": "住在哪里 住哪 live where living",
    "employer": "在哪里工作 哪家公司 上班 where do i work working company",
    "occupation": "做什么工作 干什么的 what do i do for a living profession",
    "school": "在哪里上学 读书 study where", "language": "会说什么语言 speak which languages",
    "likes": "喜欢什么 爱好 what do i like enjoy favourite", "dislikes": "不喜欢什么 讨厌 hate dislike",
    "pet": "养了什么 宠物 pets animal", "learning": "在学什么 学习 studying learning",
    "uses": "用什么 在用 using which tool", "decision": "决定用什么 选了哪个 方案 decided chose",
    "age": "多大 几岁 how old", "birthday": "什么时候生日 born when", "hometown": "哪里人 来自 from where",
    "call_me": "怎么称呼 叫我 call me",
}  # fmt: skip


def attribute_key(name: str) -> str:
    """Registered name of an attribute: aliases resolved, lower case, words joined by underscores."""
    folded = unicodedata.normalize("NFKC", name).casefold().strip()
    slug = re.sub(r"[\W]+", "_", folded).strip("_")[:64] or "other"
    return _ALIASES.get(script.folded(slug), slug)


def stored_names(attribute: str) -> tuple[str, ...]:
    """Names under which records of an attribute may be stored: its registered one, and its aliases
    in traditional characters, which earlier versions took for attributes of their own."""
    registered = attribute_key(attribute)
    return (registered, *_traditional_names().get(registered, ()))


@lru_cache(maxsize=1)
def _traditional_names() -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {}
    for alias, registered in _ALIASES.items():
        others = [] if alias.isascii() else spellings(alias)
        own = [name for name in others if name != alias and attribute_key(name) == registered]
        names[registered] = (*names.get(registered, ()), *own)
    return names


def cardinality_of(attribute: str, wanted: Cardinality | None = None) -> Cardinality:
    """Registered cardinality; for unknown attributes what was asked for, else MANY."""
    if attribute in _ONE:
        return Cardinality.ONE
    if attribute in _LABELS:
        return Cardinality.MANY
    if wanted is not None:
        return wanted
    single = attribute.startswith(("favorite_", "favourite_", "最喜欢的")) or attribute.endswith(
        ("_version", "_runs_on")
    )
    return Cardinality.ONE if single else Cardinality.MANY


def kind_of(attribute: str, wanted: FactKind, *texts: str) -> FactKind:
    """Only attributes about answering are preferences: what else is said must not be followed,
    nor what touches more than the manner of answering (`texts`: value, statement)."""
    if not may_be_followed(*texts, named=_names_manner(attribute)):
        return FactKind.FACT
    if attribute in _PREFERENCE:
        return FactKind.PREFERENCE
    return FactKind.FACT if attribute in _LABELS else wanted


def is_answering(attribute: str) -> bool:
    """Whether an attribute is about how to answer: its values are words of ours ("short")."""
    return attribute in _PREFERENCE


def trusted(fact: Fact) -> Fact:
    """`fact` as it may be loaded: a stored preference that may not be followed is a mere fact,
    whoever put it there and whatever the rules were then."""
    named = _names_manner(fact.attribute)
    if fact.kind is FactKind.PREFERENCE and not may_be_followed(
        fact.value, fact.statement, named=named
    ):
        return replace(fact, kind=FactKind.FACT)
    return fact


def _names_manner(attribute: str) -> bool:
    """Whether an attribute says by itself which manner of answering it is about."""
    return attribute in _PREFERENCE and attribute != "instruction"


def opposite(attribute: str) -> str | None:
    """The attribute whose equal value a new value of this one ends ("likes" ends "dislikes")."""
    return _OPPOSITES.get(attribute)


def statement_of(attribute: str, value: str, language: str) -> str:
    """One readable sentence about the user."""
    chinese, english = _LABELS.get(attribute, (attribute, attribute.replace("_", " ")))
    if language == "zh":
        if attribute in {"likes", "dislikes", "uses", "learning", "decision"}:
            return f"用户{chinese}：{value}" if attribute == "decision" else f"用户{chinese}{value}"
        return f"用户的{chinese}是{value}" if attribute != "instruction" else f"用户要求：{value}"
    if attribute in {"likes", "dislikes", "uses"}:
        return f"The user {english} {value}"
    return f"The user's {english}: {value}"


def searchable(fact: Fact) -> str:
    """Text under which a fact is found: its sentence, its labels and the other names it goes by."""
    labels = _LABELS.get(fact.attribute, ())
    names = [alias for alias, name in _ALIASES.items() if name == fact.attribute]
    hints = _QUESTIONS.get(fact.attribute, "")
    words = [fact.attribute, fact.statement, fact.value, *labels, *names, hints]
    return " ".join(word.replace("_", " ") for word in words)


def tombstone_hash(tenant_id: str, user_id: str, kind: str, content: str) -> str:
    """Content hash of a tombstone, salted by tenant and user so that it tells nothing by itself.

    `content`: an id. Of values and notes see `value_tombstones` and `note_tombstones`.
    """
    return _salted(tenant_id, user_id, kind, plain_key(content))


def value_tombstones(tenant_id: str, user_id: str, kind: str, content: str) -> tuple[str, str]:
    """Hashes of the tombstone of a value: the one to leave, and the one that was left for it while
    keys did not keep the signs of numbers, which holds still."""
    new = _salted(tenant_id, user_id, kind, "signs", value_key(content))
    return new, tombstone_hash(tenant_id, user_id, kind, content)


def note_tombstones(tenant_id: str, user_id: str, note: str) -> tuple[str, ...]:
    """Hashes of the tombstone of a note: the one to leave, by which it is the same note as others
    that say the same, and those that earlier versions left by its letters, which hold still."""
    new = _salted(tenant_id, user_id, "note", "words", note_key(note))
    return new, *value_tombstones(tenant_id, user_id, "note", note)


def _salted(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "replace")).hexdigest()


def user_hash(tenant_id: str, user_id: str) -> str:
    """Hash that stands for a user where the id itself must not remain."""
    return _salted(tenant_id, user_id)


@dataclass(frozen=True)
class Insert:
    """A record to add."""

    state: FactState
    valid_from: datetime
    valid_to: datetime | None


@dataclass(frozen=True)
class Close:
    """A record whose validity ends; `state` is what it becomes."""

    fact_id: str
    valid_to: datetime
    state: FactState = FactState.SUPERSEDED


@dataclass(frozen=True)
class Resume:
    """A record that was cut in two: its value holds again from `at`, when it was said again."""

    fact_id: str
    at: datetime
    valid_to: datetime | None
    state: FactState


@dataclass(frozen=True)
class Plan:
    """What a candidate does to the profile. `merge_into`: the record that gains a source."""

    insert: Insert | None = None
    merge_into: str | None = None
    earlier_start: datetime | None = None
    closes: tuple[Close, ...] = field(default=())
    resume: Resume | None = None


def plan(
    candidate: Candidate, attribute_facts: Sequence[Fact], opposite_facts: Sequence[Fact]
) -> Plan:
    """How `candidate` changes the records of its attribute (and of the opposite attribute).

    `attribute_facts`: records in state active or superseded. A statement that is older than what is
    known takes its place in the timeline instead of overwriting it.
    """
    key = value_key(candidate.value)
    cardinality = cardinality_of(candidate.attribute, candidate.cardinality)
    if candidate.ended:
        return Plan(
            closes=tuple(
                Close(f.fact_id, max(candidate.valid_from, f.valid_from), FactState.SUPERSEDED)
                for f in attribute_facts
                if f.state is FactState.ACTIVE
                and ends(candidate.value, f.value, only=cardinality is Cardinality.ONE)
            )
        )
    closes = tuple(
        Close(f.fact_id, max(candidate.valid_from, f.valid_from))
        for f in opposite_facts
        if f.state is FactState.ACTIVE
        and f.value_key == key
        and f.valid_from <= candidate.valid_from
    )
    if cardinality is Cardinality.MANY:
        return _many(candidate, key, attribute_facts, opposite_facts, closes)
    return _one(candidate, key, attribute_facts)


def _many(
    candidate: Candidate,
    key: str,
    facts: Sequence[Fact],
    opposites: Sequence[Fact],
    closes: tuple[Close, ...],
) -> Plan:
    for fact in facts:
        if fact.value_key == key and fact.state is FactState.ACTIVE:
            earlier = candidate.valid_from if candidate.valid_from < fact.valid_from else None
            return Plan(merge_into=fact.fact_id, earlier_start=earlier, closes=closes)
    # A later statement of the opposite that is known already ends this older one.
    later = [
        f.valid_from
        for f in opposites
        if f.value_key == key
        and f.state is FactState.ACTIVE
        and f.valid_from > candidate.valid_from
    ]
    if later:
        return Plan(insert=Insert(FactState.SUPERSEDED, candidate.valid_from, min(later)))
    return Plan(insert=Insert(FactState.ACTIVE, candidate.valid_from, None), closes=closes)


def _one(candidate: Candidate, key: str, facts: Sequence[Fact]) -> Plan:
    timeline = sorted(facts, key=lambda f: (f.valid_from, f.recorded_from))
    before = [f for f in timeline if f.valid_from <= candidate.valid_from]
    after = [f for f in timeline if f.valid_from > candidate.valid_from]
    if before and before[-1].value_key == key and _covers(before[-1], candidate.valid_from):
        return Plan(merge_into=before[-1].fact_id)
    if after and after[0].value_key == key:
        return Plan(
            merge_into=after[0].fact_id,
            earlier_start=candidate.valid_from,
            closes=_trim(before, candidate.valid_from),
        )
    closes = _trim(before, candidate.valid_from)
    resume = _resume(before, candidate.valid_from)
    if resume is not None:
        insert = Insert(FactState.SUPERSEDED, candidate.valid_from, resume.at)
        return Plan(insert=insert, closes=closes, resume=resume)
    if after:
        return Plan(
            insert=Insert(FactState.SUPERSEDED, candidate.valid_from, after[0].valid_from),
            closes=closes,
        )
    return Plan(insert=Insert(FactState.ACTIVE, candidate.valid_from, None), closes=closes)


def _resume(before: Sequence[Fact], at: datetime) -> Resume | None:
    """The record that `at` falls into, if its value was said again after `at` and before it ends:
    what is told of it after its end tells of what was."""
    if not before or not _covers(before[-1], at):
        return None
    cut = before[-1]
    again = sorted(
        s.event_time for s in cut.sources if s.event_time > at and _covers(cut, s.event_time)
    )
    return Resume(cut.fact_id, again[0], cut.valid_to, cut.state) if again else None


def _covers(fact: Fact, at: datetime) -> bool:
    return fact.valid_to is None or fact.valid_to > at


def _trim(before: Sequence[Fact], at: datetime) -> tuple[Close, ...]:
    return tuple(Close(f.fact_id, at) for f in before if _covers(f, at))
