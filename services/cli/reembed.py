"""`nianlun reembed`: move a collection to another embedding model, or back."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from nianlun.retriever.v1 import retriever_pb2 as pb
from nianlun.values import new_request_id
from services.cli.calls import KeyOption, TargetOption, finish, follow, session


def reembed(
    collection_id: str,
    model: Annotated[str, typer.Argument(help="Model to move to; not with --rollback.")] = "",
    hold: Annotated[bool, typer.Option("--hold", help="Fill the space, do not switch.")] = False,
    switch: Annotated[bool, typer.Option("--switch", help="Switch to a filled space.")] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="Back to the model before.")] = False,
    backfill: Annotated[bool, typer.Option("--backfill", help="Embed what is pending.")] = False,
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Embed a collection with another model while searches go on with the old one."""
    if sum((switch, rollback, backfill, hold)) > 1:
        raise typer.BadParameter("only one of --hold, --switch, --rollback and --backfill")
    if not model and not (rollback or backfill):
        raise typer.BadParameter("name the model to move to")
    console = Console()
    with session(target, key) as client:
        if switch or rollback:
            changed = client.retriever.SwitchEmbedding(
                pb.SwitchEmbeddingRequest(
                    request_id=new_request_id(), collection_id=collection_id, model_id=model
                )
            ).collection
            console.print(f"{collection_id} now uses {changed.model_id}", highlight=False)
            return
        if backfill:
            job = client.retriever.BackfillEmbeddings(
                pb.BackfillEmbeddingsRequest(
                    request_id=new_request_id(), collection_id=collection_id
                )
            ).job
        else:
            job = client.retriever.StartReembed(
                pb.StartReembedRequest(
                    request_id=new_request_id(),
                    collection_id=collection_id,
                    model_id=model,
                    hold_switch=hold,
                )
            ).job
        finish(follow(client, job, "embedding", console), console)
