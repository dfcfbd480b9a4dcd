"""`nianlun collections`: create, list, show and delete collections."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from nianlun.retriever.v1 import retriever_pb2 as pb
from nianlun.values import new_request_id
from services.cli.calls import KeyOption, TargetOption, print_table, session, whole

app = typer.Typer(no_args_is_help=True, help="Collections of documents.")


@app.command("create")
def create(
    collection_id: str,
    name: str = "",
    recipe: Annotated[str, typer.Option(help="Recipe of searches that name none.")] = "",
    model: Annotated[str, typer.Option(help="Embedding model; default: the embedder's.")] = "",
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Create an empty collection."""
    with session(target, key) as client:
        made = client.retriever.CreateCollection(
            pb.CreateCollectionRequest(
                request_id=new_request_id(),
                collection_id=collection_id,
                display_name=name,
                default_recipe=recipe,
                model_id=model,
            )
        ).collection
    typer.echo(f"created {made.collection_id} with model {made.model_id}")


@app.command("list")
def list_all(
    plain: Annotated[
        bool, typer.Option("--plain", help="For scripts: id, tab, model; a line each.")
    ] = False,
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """List all collections."""
    table = Table(
        whole("collection"), "documents", "chunks", "model", "vectors", "pending", "index"
    )
    with session(target, key) as client:
        token = ""
        while True:
            page = client.retriever.ListCollections(
                pb.ListCollectionsRequest(page_size=200, page_token=token)
            )
            for one in page.collections:
                if plain:
                    typer.echo(f"{one.collection_id}\t{one.model_id}")
                table.add_row(one.collection_id, *_row(one))
            token = page.next_page_token
            if not token:
                break
    if not plain:
        print_table(table)


@app.command("show")
def show(collection_id: str, target: TargetOption = "", key: KeyOption = "") -> None:
    """Show a collection and its embedding spaces."""
    with session(target, key) as client:
        one = client.retriever.GetCollection(
            pb.GetCollectionRequest(collection_id=collection_id)
        ).collection
    console = Console()
    console.print(f"[bold]{one.collection_id}[/bold] {one.display_name}", highlight=False)
    console.print(f"{one.document_count} documents, {one.chunk_count} chunks, {one.tokenizer}")
    table = Table("model", "state", "dimensions", "vectors", "pending", "index")
    for space in one.spaces:
        table.add_row(
            space.model_id,
            pb.SpaceState.Name(space.state).removeprefix("SPACE_STATE_").lower(),
            str(space.dimensions),
            str(space.vectors),
            str(space.pending),
            pb.DenseIndex.Name(space.index).removeprefix("DENSE_INDEX_").lower(),
        )
    console.print(table)


@app.command("delete")
def delete(
    collection_id: str,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Delete a collection with everything in it."""
    if not yes:
        typer.confirm(f"Delete {collection_id} with all its documents?", abort=True)
    with session(target, key) as client:
        gone = client.retriever.DeleteCollection(
            pb.DeleteCollectionRequest(request_id=new_request_id(), collection_id=collection_id)
        )
    typer.echo(f"deleted {gone.documents_deleted} documents, {gone.chunks_deleted} chunks")


def _row(one: pb.Collection) -> tuple[str, ...]:
    active = one.spaces[0] if one.spaces else pb.EmbeddingSpace()
    return (
        str(one.document_count),
        str(one.chunk_count),
        one.model_id,
        str(active.vectors),
        str(active.pending),
        pb.DenseIndex.Name(active.index).removeprefix("DENSE_INDEX_").lower(),
    )
