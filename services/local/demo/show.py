"""How the demo looks on a terminal."""

from __future__ import annotations

from rich.console import Console, Group
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from services.local.demo.documents import Ingested
from services.local.demo.script import Question
from services.local.demo.talk import Cited, Outcome, Step

_BAR = 24


class Screen:
    """Prints what happens; knows no more than what it is given."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def note(self, line: str) -> None:
        """A line about progress."""
        self.console.print(f"[dim]· {escape(line)}[/dim]")

    def title(self, text: str) -> None:
        """The head of a part."""
        self.console.rule(f"[bold]{escape(text)}[/bold]", align="left")

    def ingested(self, done: Ingested, seconds: float) -> None:
        """What the ingestion did."""
        what = f"{done.sent} new or changed" if done.sent else "nothing changed"
        self.console.print(
            f"{done.documents} documents, {done.chars:,} characters, {done.chunks} chunks"
            f" ({what}; {seconds:.1f} s)"
        )

    def exchange(self, outcome: Outcome) -> None:
        """A turn of the first session, in short."""
        self.console.print(f"[bold cyan]user[/bold cyan]  {escape(outcome.question)}")
        self.console.print(f"[bold green]reply[/bold green] {escape(outcome.answer)}")

    def answer(self, number: int, question: Question, outcome: Outcome) -> None:
        """A question of the second session with everything behind its answer."""
        parts: list[Table | Text] = [Text(outcome.answer.strip()), Text()]
        parts.append(_timeline(outcome.steps))
        if outcome.memories or outcome.left_out:
            parts.append(_memories(outcome))
        if outcome.citations:
            parts.append(_citations(outcome.citations))
        parts.append(Text.from_markup(_tokens(outcome)))
        parts += [Text(f"degraded: {each}", style="yellow") for each in outcome.degradations]
        self.console.print(
            Panel(
                Group(*parts),
                title=f"[bold]{number}. {escape(question.text)}[/bold]",
                subtitle=f"[dim]{escape(question.about)}[/dim]",
                title_align="left",
                subtitle_align="left",
            )
        )


def _timeline(steps: tuple[Step, ...]) -> Table:
    table = Table(box=None, pad_edge=False, title="steps", title_justify="left")
    for column in ("step", "status", "ms", "", "what"):
        table.add_column(column, justify="right" if column == "ms" else "left")
    end = max((step.start_ms + step.ms for step in steps), default=1.0) or 1.0
    for step in steps:
        offset = int(_BAR * step.start_ms / end)
        length = max(1, round(_BAR * step.ms / end))
        bar = " " * min(offset, _BAR - 1) + "━" * min(length, _BAR - min(offset, _BAR - 1))
        colour = "green" if step.status == "ok" else "yellow"
        table.add_row(
            escape(step.label),
            f"[{colour}]{step.status}[/{colour}]",
            f"{step.ms:.0f}",
            f"[blue]{bar}[/blue]",
            escape(step.note),
        )
    return table


def _memories(outcome: Outcome) -> Table:
    table = Table(box=None, pad_edge=False, title="memory loaded, and why", title_justify="left")
    for column in ("layer", "trust", "memory", "why"):
        table.add_column(column, ratio=3 if column == "memory" else None)
    for memory in outcome.memories:
        table.add_row(memory.layer, memory.trust, escape(_short(memory.text)), escape(memory.why))
    for line in outcome.left_out:
        table.add_row("[dim]left out[/dim]", "", f"[dim]{escape(line)}[/dim]", "")
    return table


def _citations(citations: tuple[Cited, ...]) -> Table:
    table = Table(box=None, pad_edge=False, title="citations", title_justify="left")
    for column in ("document", "section", "score", "legs", "passage"):
        table.add_column(column, justify="right" if column == "score" else "left")
    for citation in citations:
        legs = " ".join(f"{name} {score:.2f}" for name, score in citation.legs)
        table.add_row(
            escape(citation.document_id),
            escape(citation.section),
            f"{citation.score:.3f}",
            legs,
            escape(_short(citation.text, 60)),
        )
    return table


def _tokens(outcome: Outcome) -> str:
    tokens = outcome.tokens
    line = (
        f"tokens: prompt {tokens.total:,} (memory {tokens.memory:,}, evidence {tokens.evidence:,})"
    )
    if tokens.whole_documents:
        line += f"; without retrieval {tokens.whole_documents:,}"
        if tokens.evidence:
            line += f", {tokens.whole_documents / tokens.evidence:.0f} times the evidence"
    return f"[dim]{line}; answered by {escape(outcome.model or 'extraction')}[/dim]"


def _short(text: str, limit: int = 90) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
