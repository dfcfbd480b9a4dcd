"""`nianlun models`: what the embedder serves, and the default model as a folder for other tools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import grpc
import typer
from rich.console import Console
from rich.table import Table

from nianlun.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from services.common.errors import StartupError
from services.embedder.backends.e5_weights import WeightFileError

app = typer.Typer(no_args_is_help=True, help="Embedding models and rerankers.")

_KEY_VARIABLE = "NIANLUN_KEY"
_KEY_FILE = Path(".nianlun/key")
_TIMEOUT_S = 10.0


@app.command("list")
def list_models(
    target: Annotated[
        str, typer.Option(envvar="NIANLUN_EMBEDDER_TARGET", help="host:port of the embedder.")
    ] = "127.0.0.1:50051",
) -> None:
    """Show the models that a running embedder serves."""
    metadata = (("authorization", f"Bearer {_key()}"),)
    with grpc.insecure_channel(target) as channel:
        stub = embedder_pb2_grpc.EmbedderServiceStub(channel)
        try:
            response = stub.ListModels(
                embedder_pb2.ListModelsRequest(), timeout=_TIMEOUT_S, metadata=metadata
            )
        except grpc.RpcError as error:
            raise StartupError(f"The embedder at {target} does not answer: {error}") from error
    table = Table("id", "revision", "backend", "kinds", "dims", "tokens", "device", "ready")
    for model in response.models:
        table.add_row(
            model.id,
            model.revision,
            model.backend,
            _kinds(model),
            str(model.dimensions or ""),
            str(model.max_tokens),
            f"{model.device} {model.dtype}".strip(),
            "yes" if model.ready else "no",
        )
    Console().print(table)


@app.command("export")
def export(
    folder: Annotated[Path, typer.Argument(help="Folder to write; made if missing.")],
) -> None:
    """Write the default model as a sentence-transformers folder; needs neither torch nor
    network.
    """
    # Imported here: it loads the tokenizer library, which the other commands do without.
    from services.embedder.backends.export import export_sentence_transformers

    try:
        export_sentence_transformers(folder)
    except (WeightFileError, OSError) as error:
        raise StartupError(f"The model cannot be exported: {error}") from error
    typer.echo(f"{folder}: load it with SentenceTransformer({str(folder)!r})")


def _kinds(model: embedder_pb2.Model) -> str:
    if model.can_rerank:
        return "rerank"
    prefix = len("VECTOR_KIND_")
    return ", ".join(embedder_pb2.VectorKind.Name(kind)[prefix:].lower() for kind in model.kinds)


def _key() -> str:
    """The caller's key, from the environment or the local stack's file."""
    key = os.environ.get(_KEY_VARIABLE, "")
    if key:
        return key
    if _KEY_FILE.exists():
        return _KEY_FILE.read_text("utf-8").strip()
    raise StartupError(f"No key: set {_KEY_VARIABLE}, or run in a folder with {_KEY_FILE}.")
