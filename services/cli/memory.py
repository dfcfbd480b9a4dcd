"""`nianlun memory`: look at, search, correct, forget, export and import what is known of a user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from nianlun import Client
from nianlun.memory.v1 import memory_pb2 as pb
from services.cli.calls import KeyOption, TargetOption, lines_of, print_table, session, whole

app = typer.Typer(no_args_is_help=True, help="What is remembered of a user.")


def _day(stamp: object) -> str:
    return str(stamp.ToJsonString())[:10]  # type: ignore[attr-defined]


@app.command("show")
def show(
    user_id: str,
    query: Annotated[str, typer.Argument(help="The question memory is loaded for.")] = "",
    budget: Annotated[int, typer.Option(help="Most tokens.")] = 1_500,
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Load memory as an agent would, and say what was left out and why."""
    console = Console()
    with session(target, key) as client:
        found = client.memory.LoadMemory(
            pb.LoadMemoryRequest(user_id=user_id, query=query, budget_tokens=budget)
        )
    console.print(found.rendered or "(nothing is known)", markup=False, highlight=False)
    console.print(f"{found.tokens} tokens, confidence {found.confidence:.2f}")
    for left in found.omissions:
        layer = pb.Layer.Name(left.layer).removeprefix("LAYER_").lower()
        reason = pb.OmissionReason.Name(left.reason).removeprefix("OMISSION_REASON_").lower()
        console.print(f"left out: {left.count} of {layer} ({reason})")
    for loss in found.degradations:
        console.print(f"degraded: {loss.message}", markup=False)


@app.command("search")
def search(
    user_id: str, query: str, top_k: int = 5, target: TargetOption = "", key: KeyOption = ""
) -> None:
    """Search episode notes; every score is explained."""
    table = Table("score", "relevance", "decay", "day", "note", "legs")
    with session(target, key) as client:
        found = client.memory.SearchEpisodes(
            pb.SearchEpisodesRequest(user_id=user_id, query=query, top_k=top_k, ungated=True)
        )
    for hit in found.hits:
        legs = ", ".join(f"{leg.leg} #{leg.rank} {leg.score:.2f}" for leg in hit.legs)
        table.add_row(
            f"{hit.score:.3f}", f"{hit.relevance:.3f}", f"{hit.decay:.2f}",
            _day(hit.episode.event_time), hit.episode.note, legs,
        )  # fmt: skip
    print_table(table)


@app.command("facts")
def facts(
    user_id: str,
    history: Annotated[str, typer.Option(help="Show every record of this attribute.")] = "",
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """List profile facts, or the history of one attribute."""
    table = Table("kind", "attribute", "value", "from", "to", "state", "sources", whole("id"))
    with session(target, key) as client:
        for fact in _facts(client, user_id, history):
            table.add_row(
                pb.FactKind.Name(fact.kind).removeprefix("FACT_KIND_").lower(),
                fact.attribute,
                fact.value,
                _day(fact.valid_from),
                _day(fact.valid_to) if fact.HasField("valid_to") else "",
                pb.FactState.Name(fact.state).removeprefix("FACT_STATE_").lower(),
                str(fact.source_count),
                fact.fact_id,
            )
    print_table(table)


def _facts(client: Client, user_id: str, attribute: str) -> Iterator[pb.Fact]:
    token = ""
    while True:
        if attribute:
            history = client.memory.GetFactHistory(
                pb.GetFactHistoryRequest(user_id=user_id, attribute=attribute, page_token=token)
            )
            yield from history.facts
            token = history.next_page_token
        else:
            current = client.memory.ListFacts(
                pb.ListFactsRequest(user_id=user_id, page_token=token)
            )
            yield from current.facts
            token = current.next_page_token
        if not token:
            return


@app.command("episodes")
def episodes(
    user_id: str, session_id: str = "", target: TargetOption = "", key: KeyOption = ""
) -> None:
    """List episode notes, newest first."""
    table = Table("day", "session", "note", "origin", "vector", whole("id"))
    token = ""
    with session(target, key) as client:
        while True:
            page = client.memory.ListEpisodes(
                pb.ListEpisodesRequest(user_id=user_id, session_id=session_id, page_token=token)
            )
            for note in page.episodes:
                table.add_row(
                    _day(note.event_time),
                    note.session_id,
                    note.note,
                    pb.Origin.Name(note.origin).removeprefix("ORIGIN_").lower(),
                    pb.VectorState.Name(note.vector_state).removeprefix("VECTOR_STATE_").lower(),
                    note.episode_id,
                )
            token = page.next_page_token
            if not token:
                break
    print_table(table)


@app.command("forget")
def forget(
    user_id: str,
    session_id: Annotated[str, typer.Option("--session", help="Only this session.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Erase a user, or one session, and print the receipt."""
    what = f"session {session_id} of user {user_id}" if session_id else f"user {user_id}"
    if not yes:
        typer.confirm(f"Erase everything about {what}? This cannot be undone", abort=True)
    with session(target, key) as client:
        receipt = (
            client.erase_session(user_id, session_id) if session_id else client.erase_user(user_id)
        )
    typer.echo(f"receipt {receipt.memory_receipt_id}")
    for kind, count in sorted({**receipt.removed, **receipt.memory_job.result}.items()):
        typer.echo(f"  {kind}: {count}")


@app.command("export")
def export(
    user_id: str,
    file: Annotated[Path, typer.Argument(help="Where to write; - for standard output.")],
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Write everything about a user as JSON lines."""
    with session(target, key) as client:
        lines = list(client.export_user(user_id))
    text = "".join(f"{line}\n" for line in lines)
    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    file.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {len(lines)} lines to {file}")


@app.command("import")
def import_(
    user_id: str,
    file: Annotated[Path, typer.Argument(help="A file that export wrote.")],
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Read an export for a user; what is there already stays as it is."""
    lines = lines_of(file)
    with session(target, key) as client:
        reply = client.import_user(user_id, lines)
    stored = ", ".join(f"{kind} {count}" for kind, count in sorted(reply.stored.items()))
    typer.echo(f"stored {stored or 'nothing'}; {reply.skipped} were there already")
