"""`nianlun search`: a question to one or several collections, with every score on request."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nianlun.retriever.v1 import retriever_pb2 as pb
from services.cli.calls import KeyOption, TargetOption, session

_LEGS: Final = {pb.LEG_DENSE: "dense", pb.LEG_LEXICAL: "lexical", pb.LEG_PHRASE: "phrase"}


def search(
    query: str,
    collection: Annotated[list[str], typer.Option("--in", help="Collection; may be repeated.")],
    document: Annotated[
        list[str] | None, typer.Option(help="Only these documents of the first collection.")
    ] = None,
    recipe: str = "",
    top_k: Annotated[int, typer.Option(min=1, max=1000)] = 10,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show where scores come from.")
    ] = False,
    no_gate: Annotated[bool, typer.Option("--no-gate", help="Show weak hits too.")] = False,
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Search collections."""
    scopes = [pb.SearchScope(collection_id=c) for c in collection]
    scopes[0].document_ids.extend(document or [])
    request = pb.SearchRequest(
        query=query,
        scopes=scopes,
        recipe=recipe,
        top_k=top_k,
        gate=pb.GATE_MODE_OFF if no_gate else pb.GATE_MODE_UNSPECIFIED,
    )
    with session(target, key) as client:
        response = client.retriever.Search(request)
    console = Console()
    for number, hit in enumerate(response.hits, 1):
        _show(console, number, hit, explain=explain)
    level = pb.Confidence.Name(response.confidence).removeprefix("CONFIDENCE_").lower()
    console.print(
        f"[bold]confidence {level}[/bold] ({response.confidence_score:.2f}), "
        f"{len(response.hits)} hits, {response.held_back} held back"
    )
    for one in response.degradations:
        console.print(f"[yellow]{escape(one.message)}[/yellow]")
    if explain:
        _explain(console, response)


def _show(console: Console, number: int, hit: pb.Hit, *, explain: bool) -> None:
    where = " > ".join((hit.title, *hit.chunk.section_path))
    console.print(f"[bold]{number}. {hit.score:.3f}[/bold] {escape(where)}", highlight=False)
    console.print(f"   {escape(' '.join(hit.chunk.text.split())[:240])}", highlight=False)
    if hit.other_source_count:
        console.print(f"   [dim]also in {hit.other_source_count} other places[/dim]")
    if not explain:
        return
    table = Table("leg", "rank", "score", "normalised", "contribution", box=None)
    for leg in hit.explanation.legs:
        table.add_row(
            _LEGS[leg.leg],
            str(leg.rank or "-"),
            f"{leg.score:.4f}",
            f"{leg.normalized:.3f}",
            f"{leg.contribution:.3f}",
        )
    reasons = hit.explanation
    if reasons.HasField("rerank_score"):
        table.add_row(
            "rerank", "", f"{reasons.rerank_raw_score:.4f}", f"{reasons.rerank_score:.3f}"
        )
    table.add_row("fused", str(reasons.fused_rank), f"{reasons.fused_score:.4f}")
    table.add_row("quality", "", f"x {reasons.quality_weight:.2f}")
    console.print(table)


def _explain(console: Console, response: pb.SearchResponse) -> None:
    said = response.explanation
    console.print(f"recipe {said.recipe}, tokens: {escape(' '.join(said.query_tokens))}")
    legs = ", ".join(
        f"{_LEGS[r.leg]} {r.candidates} by {r.method} x {r.weight:.2f}" for r in said.legs if r.ran
    )
    console.print(legs, highlight=False)
    console.print(", ".join(f"{t.step} {t.ms:.1f} ms" for t in response.timings), highlight=False)
