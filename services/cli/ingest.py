"""`nianlun ingest`: files and folders into a collection, with a progress bar."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import grpc
import typer
from rich.console import Console

from nianlun import Client
from nianlun.retriever.v1 import retriever_pb2 as pb
from nianlun.values import new_request_id
from services.cli.calls import KeyOption, TargetOption, finish, follow, session

SUFFIXES: Final = frozenset(
    (".md", ".markdown", ".txt", ".html", ".htm", ".pdf", ".docx", ".pptx", ".xlsx", ".epub")
)
MAX_FILE_BYTES: Final = 12 * 1024 * 1024
_BATCH_BYTES: Final = 8 * 1024 * 1024
_BATCH_FILES: Final = 64


def ingest(
    collection_id: str,
    paths: Annotated[list[Path], typer.Argument(exists=True, help="Files or folders.")],
    create: Annotated[
        bool, typer.Option("--create/--no-create", help="Create the collection if missing.")
    ] = True,
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Store documents. Files that cannot be read are named; the others are stored."""
    console = Console()
    failed = False
    with session(target, key) as client:
        if create:
            _ensure(client, collection_id)
        refused = [p for p in _files(paths) if p.stat().st_size > MAX_FILE_BYTES]
        for path in refused:
            console.print(f"[red]{path}[/red]: larger than 12 MiB", highlight=False)
        accepted = [p for p in _files(paths) if p not in set(refused)]
        names = document_ids(accepted, paths)
        if not accepted:
            typer.echo("nianlun: nothing to ingest", err=True)
            raise typer.Exit(1)
        for number, batch in enumerate(_batches(accepted), 1):
            job = client.retriever.UpsertDocuments(
                pb.UpsertDocumentsRequest(
                    request_id=new_request_id(),
                    collection_id=collection_id,
                    documents=[_input(p, names[p]) for p in batch],
                )
            ).job
            ended = follow(client, job, f"batch {number}", console)
            failed = failed or bool(ended.item_errors)
            finish(ended, console)
    if failed or refused:
        raise typer.Exit(1)


def _ensure(client: Client, collection_id: str) -> None:
    try:
        client.retriever.CreateCollection(
            pb.CreateCollectionRequest(request_id=new_request_id(), collection_id=collection_id)
        )
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
            raise


def _files(paths: list[Path]) -> Iterator[Path]:
    """Each file once, also where a folder and one inside it are both named."""
    seen: set[Path] = set()
    for path in paths:
        inside = (
            (p for p in sorted(path.rglob("*")) if p.is_file() and p.suffix.lower() in SUFFIXES)
            if path.is_dir()
            else (path,)
        )
        for file in inside:
            if (real := file.resolve()) not in seen:
                seen.add(real)
                yield file


def document_ids(files: list[Path], roots: list[Path]) -> dict[Path, str]:
    """The path inside the folder that was named; the whole path where two files share that."""
    names = {}
    for path in files:
        root = next((r for r in roots if r.is_dir() and path.is_relative_to(r)), path.parent)
        names[path] = path.relative_to(root).as_posix()
    shared = {name for name, count in Counter(names.values()).items() if count > 1}
    return {path: path.as_posix() if name in shared else name for path, name in names.items()}


def _input(path: Path, name: str) -> pb.DocumentInput:
    # The last 256 characters: what tells two files of one deep folder apart.
    return pb.DocumentInput(document_id=name[-256:], data=path.read_bytes() or b" ", uri=name)


def _batches(files: list[Path]) -> Iterator[list[Path]]:
    batch: list[Path] = []
    size = 0
    for path in files:
        bytes_ = path.stat().st_size
        if batch and (size + bytes_ > _BATCH_BYTES or len(batch) >= _BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += bytes_
    if batch:
        yield batch
