"""`nianlun models`: what the embedder serves, and the default model as a folder for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from nianlun.embedder.v1 import embedder_pb2
from services.cli.calls import KeyOption, TargetOption, print_table, session, whole
from services.common.errors import StartupError

app = typer.Typer(no_args_is_help=True, help="Embedding models and rerankers.")


@app.command("list")
def list_models(
    target: TargetOption = "",
    key: KeyOption = "",
) -> None:
    """Show the models that a running embedder serves."""
    with session(target, key) as client:
        response = client.list_models()
    table = Table(whole("id"), "revision", "backend", "kinds", "dims", "tokens", "device", "ready")
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
    print_table(table)


@app.command("export")
def export(
    folder: Annotated[Path, typer.Argument(help="Folder to write; made if missing.")],
) -> None:
    """Write the default model as a sentence-transformers folder; needs neither torch nor
    network.
    """
    # Imported here: numpy and the tokenizer library, which the other commands do without.
    from services.embedder.backends.e5_weights import WeightFileError
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
