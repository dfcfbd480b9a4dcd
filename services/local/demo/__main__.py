"""Run the demo: start the stack, ingest, talk, show, check, write `.nianlun/demo.json`, stop.

The exit code is 0 and the last line `demo: ok` only when every check held and no process is left.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from nianlun import Client, Connection, JobFailedError, NianlunError
from services.local.demo import checks, documents, script
from services.local.demo.documents import Ingested, Source
from services.local.demo.show import Screen
from services.local.demo.talk import ChatFailedError, Outcome, ask
from services.local.errors import LocalError
from services.local.home import Home, StackInfo, default_home
from services.local.stack import REPOSITORY, launch

# The kernel takes a moment to clear away what has ended.
_GONE_S = 3.0


@dataclass
class Result:
    """What is written to `.nianlun/demo.json`; filled as the demo goes on. Times in seconds."""

    start_time: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    ok: bool = False
    problems: list[str] = field(default_factory=list)
    stack_s: float = 0.0
    ingest_s: float = 0.0
    total_s: float = 0.0
    ingested: Ingested | None = None
    first_session: list[Outcome] = field(default_factory=list)
    questions: list[Outcome] = field(default_factory=list)


def run(home: Home, screen: Screen) -> Result:
    """The whole demo; what went wrong stands in ``problems``."""
    result = Result()
    begin = time.monotonic()
    processes: list[psutil.Process] = []
    try:
        with launch(home, report=screen.note) as stack:
            result.stack_s = time.monotonic() - begin
            processes = _everything_below(stack.info)
            connection = Connection(targets=stack.info.targets, key=stack.info.key)
            with Client.of(connection) as client:
                _play(client, screen, result)
    except (LocalError, NianlunError, ChatFailedError, JobFailedError) as error:
        result.problems.append(str(error))
    _gone, left = psutil.wait_procs(processes, timeout=_GONE_S)
    if left:
        result.problems.append(f"processes left behind: {', '.join(map(str, left))}")
    result.total_s = time.monotonic() - begin
    result.ok = not result.problems
    return result


def _play(client: Client, screen: Screen, result: Result) -> None:
    _forget(client)
    sources = documents.read_sources(REPOSITORY)
    screen.title("1. The documentation becomes knowledge")
    result.ingested = _ingest(client, screen, sources, result)
    result.problems += checks.check_documents(sources, result.ingested)

    stamp = datetime.now(UTC).strftime("%Y%m%d%H%M%S")
    screen.title(f"2. Session 1 of {script.USER}")
    for text in script.FIRST_SESSION:
        outcome = ask(client, script.USER, f"s1-{stamp}", text, documents=False)
        result.first_session.append(outcome)
        screen.exchange(outcome)
    client.end_session(script.USER, f"s1-{stamp}")

    screen.title("3. Session 2, at once")
    texts = {each.document_id: each.text for each in sources}
    for number, question in enumerate(script.SECOND_SESSION, start=1):
        outcome = ask(
            client, script.USER, f"s2-{stamp}", question.text, documents=question.documents
        )
        result.questions.append(outcome)
        screen.answer(number, question, outcome)
        for problem in checks.check_answer(question, outcome, texts, client):
            result.problems.append(f"question {number}: {problem}")


def _forget(client: Client) -> None:
    """Start from a user nobody knows: what an earlier run taught must not answer for this one."""
    client.erase_user(script.USER)


def _ingest(client: Client, screen: Screen, sources: list[Source], result: Result) -> Ingested:
    begin = time.monotonic()
    columns = (
        TextColumn("ingesting"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} characters"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen.console) as bar:
        task = bar.add_task("ingest", total=1)
        ingested = documents.ingest(
            client, sources, lambda done, total: bar.update(task, completed=done, total=total)
        )
        bar.update(task, completed=ingested.chars, total=ingested.chars)
    result.ingest_s = time.monotonic() - begin
    screen.ingested(ingested, result.ingest_s)
    return ingested


def _everything_below(info: StackInfo) -> list[psutil.Process]:
    owner = psutil.Process(info.pid)
    return [owner, *owner.children(recursive=True)]


def write(result: Result, path: Path) -> None:
    """The result as JSON, readable by people too."""
    text = json.dumps(asdict(result), ensure_ascii=False, indent=2)
    path.write_text(text + "\n", encoding="utf-8")


def main() -> int:
    """Run, print, write; the exit code."""
    console = Console(highlight=False)
    home = default_home()
    screen = Screen(console)
    try:
        result = run(home, screen)
    except KeyboardInterrupt:
        console.print("interrupted; the stack is stopped")
        return 130
    if home.root.is_dir():
        write(result, home.root / "demo.json")
    console.print(
        f"[dim]stack up in {result.stack_s:.1f} s, ingested in {result.ingest_s:.1f} s,"
        f" {result.total_s:.1f} s in all; details: {home.root / 'demo.json'}[/dim]"
    )
    if not result.ok:
        for problem in result.problems:
            console.print(f"[red]problem:[/red] {escape(problem)}")
        console.print("demo: failed")
        return 1
    console.print("demo: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
