"""`nianlun mcp`: the MCP server, whose own options are passed on as they are."""

from __future__ import annotations

import sys
from typing import Any, Final

import typer

from services.common import extras

_NEEDED: Final = ("nianlun_mcp", "mcp", "uvicorn", "starlette")
CONTEXT: Final[dict[str, Any]] = {"allow_extra_args": True, "ignore_unknown_options": True}


def mcp(context: typer.Context) -> None:
    """Offer memory and search as MCP tools, on stdio or with --http; see `nianlun mcp --help`."""
    try:
        from nianlun_mcp.__main__ import main
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(_NEEDED):
            raise
        typer.echo(
            f"nianlun: the MCP server is not installed: {extras.install('mcp')} in the clone",
            err=True,
        )
        raise typer.Exit(1) from None
    sys.exit(main(context.args))
