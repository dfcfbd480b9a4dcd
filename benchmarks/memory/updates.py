# ruff: noqa: E501 - tables read better with one entry a line
"""Updates and recency: generated statements, later corrections and additions, questions about now and then.

No public set labels them. Per language: many attributes, single- and many-valued, A -> B, A -> B -> A, additions
and endings, with distractors between, and dates said the Chinese and the English way. Each case is one user. A
scripted model answers as a good one would (facts with quotes); the rules read the same turns. Measured through
LoadMemory: the share of questions whose current value ranks first among the facts, and of those whose value at
an earlier instant is right.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from pydantic import SecretStr

from benchmarks.memory.rig import Rig, rig
from benchmarks.report import Report
from services.common import errors
from services.common.db import Database
from services.common.jobs import Jobs
from services.common.llm import ChatClient, Completion
from services.common.settings import DatabaseSettings
from services.memory import append, load
from services.memory.apply import apply
from services.memory.deps import Deps
from services.memory.domain import FactKind, Layer, Message, Role
from services.memory.embedding import Embedded
from services.memory.extraction.extractor import Extractor, LlmExtractor, RulesExtractor
from services.memory.grouping import TurnWriter
from services.memory.index import IndexCache
from services.memory.settings import MemorySettings
from services.memory.store import turns as turn_store
from services.memory.vectors import Model, Question

NOW = datetime(2026, 6, 15, 9, 0, tzinfo=UTC)
PER_LANGUAGE = 240


@dataclass(frozen=True)
class Topic:
    """One attribute in one language: `say` states a value, `change` states a new one."""

    attribute: str
    single: bool
    say: str
    change: str
    ask: str
    values: tuple[str, ...]
    end: str = ""


ZH = (
    Topic("employer", True, "我在{v}工作", "我现在在{v}工作了", "我在哪家公司上班？", ("字节跳动", "阿里巴巴", "小米科技", "海康威视")),
    Topic("city", True, "我住在{v}", "我搬到{v}了", "我现在住在哪里？", ("北京", "上海", "成都", "杭州")),
    Topic("occupation", True, "我是一名{v}", "我转行做了{v}", "我是做什么工作的？", ("前端工程师", "产品经理", "摄影师", "数据分析师")),
    Topic("name", True, "我叫{v}", "我的名字是{v}", "我叫什么名字？", ("林舟", "陈默", "周晓", "沈一")),
    Topic("call_me", True, "以后叫我{v}", "以后请叫我{v}就行", "你应该怎么称呼我？", ("小云", "阿舟", "老陈", "周周")),
    Topic("answer_length", True, "回答请{v}", "以后回答尽量{v}", "回答要多长？", ("简短", "详细", "精简", "具体")),
    Topic("最喜欢的颜色", True, "我最喜欢的颜色是{v}", "我最喜欢的颜色是{v}", "我最喜欢的颜色是什么？", ("蓝色", "绿色", "橙色", "黑色")),
    Topic("最喜欢的乐队", True, "我最喜欢的乐队是{v}", "我最喜欢的乐队是{v}", "我最喜欢的乐队是哪个？", ("五月天", "草东", "痛仰", "万青")),
    Topic("计费系统_runs_on", True, "计费系统跑在{v}上", "计费系统迁移到了{v}", "计费系统跑在什么上面？", ("PostgreSQL 16", "PostgreSQL 18", "MySQL 8", "TiDB 7")),
    Topic("网站_runs_on", True, "公司网站部署在{v}上", "公司网站迁移到了{v}", "公司网站部署在哪里？", ("阿里云", "腾讯云", "华为云", "自建机房")),
    Topic("language", False, "我会说{v}", "我也会说{v}", "我会说哪些语言？", ("英语", "法语", "日语", "德语")),
    Topic("likes", False, "我喜欢{v}", "我也喜欢{v}", "我喜欢什么？", ("爬山", "摄影", "木工", "钓鱼"), "我不再喜欢{v}了"),
    Topic("learning", False, "我在学{v}", "我最近在学{v}", "我在学什么？", ("吉他", "法语语法", "Rust", "水彩")),
    Topic("pet", False, "我养了一只{v}", "我还养了一只{v}", "我养了什么宠物？", ("橘猫", "金毛", "仓鼠", "鹦鹉")),
    Topic("decision", False, "我们决定用{v}", "我们最后决定改用{v}", "我们决定用什么方案？", ("giscus", "Disqus", "Waline", "Twikoo")),
)  # fmt: skip
EN = (
    Topic("employer", True, "I work at {v}", "I now work at {v}", "Where do I work?", ("Acme", "Globex", "Initech", "Umbrella")),
    Topic("city", True, "I live in {v}", "I moved to {v}", "Where do I live?", ("Berlin", "Lisbon", "Oslo", "Kyoto")),
    Topic("occupation", True, "I'm a {v}", "I became a {v}", "What is my job?", ("data engineer", "teacher", "photographer", "product manager")),
    Topic("name", True, "My name is {v}", "My name is {v}", "What is my name?", ("Ann Lee", "Bo Chen", "Kim Park", "Ida Moe")),
    Topic("call_me", True, "Please call me {v}", "Please call me {v}", "How should you call me?", ("Annie", "Bobo", "Kimmy", "Ida")),
    Topic("answer_length", True, "Please keep answers {v}", "Please keep your answers {v}", "How long should answers be?", ("short", "detailed", "brief", "thorough")),
    Topic("favorite_color", True, "My favorite color is {v}", "My favorite color is now {v}", "What is my favorite color?", ("blue", "green", "orange", "black")),
    Topic("favorite_band", True, "My favorite band is {v}", "My favorite band is now {v}", "What is my favorite band?", ("Low", "Can", "Muse", "Wilco")),
    Topic("billing_runs_on", True, "Billing runs on {v}", "Billing now runs on {v}", "What does billing run on?", ("PostgreSQL 16", "PostgreSQL 18", "MySQL 8", "Oracle 19")),
    Topic("website_runs_on", True, "The website is hosted on {v}", "The website is now on {v}", "Where is the website hosted?", ("Hetzner", "Fly", "Render", "Linode")),
    Topic("language", False, "I speak {v}", "I also speak {v}", "Which languages do I speak?", ("English", "French", "Japanese", "German")),
    Topic("likes", False, "I like {v}", "I also like {v}", "What do I like?", ("hiking", "photography", "carpentry", "fishing"), "I no longer like {v}"),
    Topic("learning", False, "I'm learning {v}", "I'm also learning {v}", "What am I learning?", ("guitar", "Rust", "watercolor", "chess")),
    Topic("pet", False, "I have a {v}", "I also have a {v}", "Which pets do I have?", ("cat", "dog", "hamster", "parrot")),
    Topic("uses", False, "I use {v}", "I also use {v}", "Which tools do I use?", ("Vim", "Emacs", "Zed", "Helix"), "I no longer use {v}"),
)  # fmt: skip
_NOISE = {
    "zh": ("今天天气不错。", "帮我看看这段代码。", "谢谢你。", "如果我住在巴黎就好了。", "你觉得我该换工作吗？"),
    "en": ("Nice weather today.", "Can you review this code?", "Thanks a lot.", "What if I lived in Paris?", "Should I change jobs?"),
}  # fmt: skip
_WHEN = {
    "zh": ((7, "上周"), (30, "上个月"), (2, "前天")),
    "en": ((7, "last week"), (30, "last month"), (1, "yesterday")),
}


@dataclass(frozen=True)
class Said:
    """One turn: when, what, and the fact a good model would write (None for noise)."""

    at: datetime
    text: str
    fact: dict[str, Any] | None


@dataclass(frozen=True)
class Case:
    """One user's story: what must rank first now, and what held at `then`."""

    language: str
    kind: str
    turns: tuple[Said, ...]
    question: str
    attribute: str
    now: frozenset[str]
    then: datetime
    then_value: str


def _fact(topic: Topic, value: str, text: str, *, ended: bool = False) -> dict[str, Any]:
    preference = topic.attribute.startswith(("answer_", "call_me"))
    return {
        "turn": 1, "kind": "preference" if preference else "fact", "attribute": topic.attribute,
        "value": value, "statement": "", "quote": text, "ended": ended,
        "cardinality": "one" if topic.single else "many",
    }  # fmt: skip


def _statement(topic: Topic, value: str, at: datetime, changed: bool, ended: bool = False) -> Said:
    form = topic.end if ended else topic.change if changed else topic.say
    text = form.format(v=value)
    return Said(at, text, _fact(topic, value, text, ended=ended))


def cases(language: str, count: int, seed: int = 5) -> list[Case]:
    """`count` stories of one language."""
    rng = random.Random(f"{seed}{language}")
    topics = ZH if language == "zh" else EN
    return [_case(language, topics, topics[n % len(topics)], rng) for n in range(count)]


def _case(language: str, topics: Sequence[Topic], topic: Topic, rng: random.Random) -> Case:
    a, b = rng.sample(topic.values, 2)
    first, second, third = (
        NOW - timedelta(days=200),
        NOW - timedelta(days=100),
        NOW - timedelta(days=9),
    )
    kinds = ["update", "back"] if topic.single else ["addition", *(["ended"] if topic.end else [])]
    kind = rng.choice(kinds)
    told = [_statement(topic, a, first, False)]
    now: set[str]
    if kind == "update":
        told.append(_dated(topic, b, second, language, rng))
        now = {b}
    elif kind == "back":
        told += [_statement(topic, b, second, True), _statement(topic, a, third, True)]
        now = {a}
    elif kind == "addition":
        told.append(_statement(topic, b, second, True))
        now = {a, b}
    else:
        told += [_statement(topic, b, second, True), _statement(topic, a, third, False, True)]
        now = {b}
    for other in rng.sample([t for t in topics if t.attribute != topic.attribute], 3):
        at = NOW - timedelta(days=rng.randint(10, 190))
        told.append(_statement(other, rng.choice(other.values), at, False))
    for text in rng.sample(_NOISE[language], 2):
        told.append(Said(NOW - timedelta(days=rng.randint(10, 190)), text, None))
    told.sort(key=lambda s: s.at)
    return Case(language, kind, tuple(told), topic.ask, topic.attribute, frozenset(now),
                NOW - timedelta(days=150), a)  # fmt: skip


def _dated(topic: Topic, value: str, at: datetime, language: str, rng: random.Random) -> Said:
    """A change that says when it happened, in the way of the language."""
    said = _statement(topic, value, at, True)
    if topic.attribute not in ("city", "计费系统_runs_on", "网站_runs_on") or rng.random() < 0.5:
        return said
    _, when = rng.choice(_WHEN[language])
    text = f"{when}{said.text}" if language == "zh" else f"{said.text} {when}"
    return replace(said, text=text, fact={**cast("dict[str, Any]", said.fact), "quote": text})


class Scripted:
    """A model that writes down exactly what each statement says."""

    def __init__(self, script: dict[str, dict[str, Any]]) -> None:
        self._script = script

    async def complete(self, messages: Sequence[dict[str, Any]], **_: Any) -> Completion:
        """Facts of the turns in the prompt."""
        body = str(messages[-1]["content"])
        said = re.findall(
            r'<turn number="(\d+)".*?>\nuser: (.*?)\n(?:assistant|</turn>)', body, re.DOTALL
        )
        facts = [
            {**self._script[text], "turn": int(number)}
            for number, text in said
            if text in self._script
        ]
        return Completion(json.dumps({"facts": facts, "notes": []}, ensure_ascii=False))


class NoEmbedder:
    """The words decide alone."""

    async def model(self) -> Model:
        """Not there."""
        raise errors.dependency_unavailable("embedder")

    async def query(self, text: str) -> Question:
        """Not there."""
        raise errors.dependency_unavailable("embedder")

    async def documents(self, texts: Sequence[str]) -> Embedded:
        """Not there."""
        raise errors.dependency_unavailable("embedder")


async def _tell(deps: Deps, user: str, case: Case, extractor: Extractor) -> None:
    for number, said in enumerate(case.turns):
        await append.append(deps, "bench", append.Incoming(
            rpc="bench", request_id=f"{user}-{number}", request_hash=b"x", user_id=user,
            session_id=f"s{number % 2}", messages=(Message(Role.USER, said.text),),
            event_time=said.at, time_zone="Asia/Shanghai" if case.language == "zh" else "UTC",
            metadata={},
        ))  # fmt: skip
    for session in ("s0", "s1"):
        async with deps.db.tenant("bench") as conn:
            turns = await turn_store.undigested(conn, user, session, 32)
        outcome = await extractor.extract(turns, [])
        async with deps.db.tenant("bench") as conn:
            alive = await turn_store.lock_fresh(conn, user, [t.turn_id for t in turns])
            await apply(conn, "bench", user, outcome.extraction, alive)
            await turn_store.mark_digested(conn, user, [t.turn_id for t in turns])


async def _ask(deps: Deps, user: str, case: Case, as_of: datetime) -> list[tuple[str, str]]:
    """(attribute, value) of the facts as LoadMemory ranks them for the question."""
    found = await load.load(deps, "bench", load.LoadQuery(
        user_id=user, session_id="", query=case.question, budget=2_000, at_least=0, as_of=as_of,
        layers=frozenset({Layer.PROFILE}), exclude_session=False, max_episodes=3, time_zone="",
        current_document_id="",
    ))  # fmt: skip
    asked = case.attribute.startswith(("answer_", "call_me"))
    kind = FactKind.PREFERENCE if asked else FactKind.FACT
    return [(f.attribute, f.value) for f in found.facts if f.kind is kind]


def _ranks_first(found: list[tuple[str, str]], wanted: frozenset[str]) -> bool:
    """The first facts are exactly the wanted values (in any order among themselves)."""
    first = [value.casefold() for _, value in found[: len(wanted)]]
    return set(first) == {w.casefold() for w in wanted}


async def _measure(bench: Rig, report: Report, count: int) -> None:
    dsn = SecretStr(bench.postgres.dsn(user="nianlun_memory"))
    database = DatabaseSettings(dsn=dsn)
    db = Database(database, schema="memory")
    await db.open()
    settings = MemorySettings(database_dsn=dsn)
    deps = Deps(
        settings,
        db,
        Jobs(db, "memory", database),
        NoEmbedder(),
        IndexCache(10, 1_000),
        TurnWriter(db),
    )
    deps = replace(deps, now=lambda: NOW)
    try:
        for name in ("scripted", "rules"):
            for language in ("zh", "en"):
                await _one(deps, report, name, language, count)
    finally:
        await db.close()


async def _one(deps: Deps, report: Report, name: str, language: str, count: int) -> None:
    told = cases(language, count)
    script = {s.text: s.fact for case in told for s in case.turns if s.fact is not None}
    scripted = LlmExtractor(cast("ChatClient", Scripted(script)), 5.0)
    extractor: Extractor = scripted if name == "scripted" else RulesExtractor()
    first = then = 0
    wrong: list[dict[str, Any]] = []
    for number, case in enumerate(told):
        user = f"{name}-{language}-{number}"
        await _tell(deps, user, case, extractor)
        now = await _ask(deps, user, case, NOW)
        before = await _ask(deps, user, case, case.then)
        good = _ranks_first(now, case.now)
        held = _ranks_first(before, frozenset({case.then_value}))
        first += good
        then += held
        if not (good and held) and len(wrong) < 30:
            wrong.append({
                "kind": case.kind, "said": [s.text for s in case.turns], "asked": case.question,
                "wanted": sorted(case.now), "got": now[:4], "then": case.then_value, "before": before[:4],
            })  # fmt: skip
    limit = 0.97 if name == "scripted" else None
    report.figure(f"update_{name}_{language}_first", first / len(told), limit)
    report.figure(f"update_{name}_{language}_as_of", then / len(told), limit)
    report.details[f"updates_{name}_{language}"] = {"questions": len(told), "wrong": wrong}


def run(report: Report) -> None:
    """Both extractors, both languages."""
    count = 60 if os.environ.get("QUICK") == "1" else PER_LANGUAGE
    with rig() as bench:
        asyncio.run(_measure(bench, report, count))
