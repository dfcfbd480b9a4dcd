"""`nianlun calibrate`: fit a model's fusion anchors and gate to a collection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from nianlun.retriever.v1 import retriever_pb2 as pb
from nianlun.values import new_request_id
from services.cli.calls import KeyOption, TargetOption, finish, follow, lines_of, session


def calibrate(
    collection_id: str,
    pairs: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help='JSON lines {"query": ..., "document_ids": [...]}; without, questions are made.',
        ),
    ] = None,
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Fit the anchors of the collection's model; needs a key of scope admin."""
    console = Console()
    labelled = _read(pairs) if pairs else []
    with session(target, key) as client:
        job = client.retriever.Calibrate(
            pb.CalibrateRequest(
                request_id=new_request_id(), collection_id=collection_id, pairs=labelled
            )
        ).job
        ended = follow(client, job, "questions", console)
        if ended.result:
            table = Table("parameter", "value")
            for name, value in sorted(ended.result.items()):
                table.add_row(name, value)
            console.print(table)
            ended.ClearField("result")
        finish(ended, console)


def _read(path: Path) -> list[pb.LabelledPair]:
    out: list[pb.LabelledPair] = []
    for number, line in enumerate(lines_of(path), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            out.append(
                pb.LabelledPair(query=item["query"], document_ids=item.get("document_ids", []))
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise typer.BadParameter(
                f'{path}:{number}: expected {{"query": ..., "document_ids": [...]}}'
            ) from None
    return out
