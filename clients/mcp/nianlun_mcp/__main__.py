"""`nianlun-mcp`, `python -m nianlun_mcp` and `nianlun mcp`: the server on stdio or over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nianlun.connection import Connection
from nianlun_mcp.callers import RefusedError, StdioCallers
from nianlun_mcp.desk import Desk
from nianlun_mcp.server import build
from nianlun_mcp.settings import HttpSettings, McpSettings, Variable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until the client goes away or a signal comes; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        settings = _settings(options)
        if options.http is None:
            asyncio.run(_stdio(settings))
        else:
            asyncio.run(_serve(settings, _http(options)))
    except (RefusedError, FileNotFoundError, ValueError) as error:
        sys.stderr.write(f"nianlun mcp: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


async def _stdio(settings: McpSettings) -> None:
    callers = StdioCallers(settings)
    desk = Desk(settings)
    try:
        await _checked(desk, settings.connection.key)
        await build(settings, callers, desk).run_stdio_async()
    finally:
        await desk.close()


async def _checked(desk: Desk, key: str) -> None:
    """Refuse to start with a bad key; services that are down may come back."""
    try:
        await desk.check(key)
    except RefusedError as error:
        if error.status != 503:
            raise
        sys.stderr.write(f"nianlun mcp: {error}; going on\n")


async def _serve(settings: McpSettings, http: HttpSettings) -> None:
    import uvicorn

    from nianlun_mcp.http import application

    if http.host not in ("127.0.0.1", "::1", "localhost") and not http.hosts:
        raise ValueError(
            f"listening on {http.host} needs --allow-host NAME: the names it is called by"
        )
    config = uvicorn.Config(
        application(settings, http),
        host=http.host,
        port=http.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=http.grace_s,
    )
    # uvicorn finishes the requests, then hands the signal on, which would end the process by it: a
    # server that was told to stop has not failed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Not uvicorn.run: the channels belong to the loop in which the application is made.
    await uvicorn.Server(config).serve()


def _settings(options: argparse.Namespace) -> McpSettings:
    if options.local:
        connection = Connection.local(options.home)
        if options.http is not None:
            connection = replace(connection, key="")
    else:
        # Over HTTP every caller brings a key; the server must have none that it could lend.
        key = "" if options.http is not None else os.environ.get(Variable.API_KEY)
        certificates = Path(options.ca).read_bytes() if options.ca else None
        connection = Connection.of(
            options.target or None, key=key, tls=options.tls, root_certificates=certificates
        )
    return McpSettings(
        connection=connection,
        user_id=options.user,
        session_id=options.session,
        collections=tuple(options.collection or _listed(Variable.COLLECTIONS)),
        choose_user=options.choose_user,
        forget_everything=options.forget_everything,
        time_zone=options.time_zone,
    )


def _http(options: argparse.Namespace) -> HttpSettings:
    host, _, port = options.http.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--http takes HOST:PORT, not {options.http!r}")
    return HttpSettings(
        host=host.strip("[]"),
        port=int(port),
        hosts=tuple(options.allow_host or _listed(Variable.HOSTS)),
        origins=tuple(options.allow_origin or _listed(Variable.ORIGINS)),
    )


def _env(name: Variable) -> str:
    return os.environ.get(name, "")


def _listed(name: Variable) -> list[str]:
    return [each.strip() for each in _env(name).split(",") if each.strip()]


def _switch(name: Variable) -> bool:
    return _env(name).strip().lower() in ("1", "true", "yes", "on")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nianlun mcp",
        description="Nianlun's memory and search as MCP tools. Over stdio the key is"
        " NIANLUN_API_KEY (or NIANLUN_KEY); over HTTP every request brings its own.",
    )
    add = parser.add_argument
    add(
        "--http",
        nargs="?",
        const="127.0.0.1:8090",
        default=_env(Variable.LISTEN) or None,
        metavar="HOST:PORT",
        help="serve streamable HTTP at /mcp instead of stdio (NIANLUN_MCP_LISTEN; without an"
        " address 127.0.0.1:8090)",
    )
    add(
        "--user",
        default=_env(Variable.USER),
        help="whose memory (NIANLUN_MCP_USER); over HTTP else the header X-Nianlun-User",
    )
    add(
        "--session",
        default=_env(Variable.SESSION),
        help="session that turns are filed under (NIANLUN_MCP_SESSION); default: a new one, over"
        " HTTP the header X-Nianlun-Session or one a day",
    )
    add(
        "--collection",
        action="append",
        help="a collection that may be searched, the first by default; may be repeated"
        " (NIANLUN_MCP_COLLECTIONS, with commas); without any: all, and the model names them",
    )
    add(
        "--choose-user",
        action="store_true",
        default=_switch(Variable.CHOOSE_USER),
        help="let the model name the user (NIANLUN_MCP_CHOOSE_USER)",
    )
    add(
        "--forget-everything",
        action="store_true",
        default=_switch(Variable.FORGET_EVERYTHING),
        help="let the tool forget erase the whole user (NIANLUN_MCP_FORGET_EVERYTHING)",
    )
    add("--time-zone", default=_env(Variable.TIME_ZONE), help="IANA zone of the user")
    add("--local", action="store_true", help="addresses (and on stdio the key) of `make serve`")
    add("--home", default=None, help="folder of the local stack, with --local")
    add(
        "--target",
        default="",
        help="one address for all services; else NIANLUN_MEMORY_TARGET and its like",
    )
    add("--tls", action="store_true", default=_switch(Variable.TLS), help="TLS to the services")
    add("--ca", default=_env(Variable.CA_FILE), help="PEM file of their authority")
    add("--allow-host", action="append", help="a Host header to answer (NIANLUN_MCP_HOSTS)")
    add("--allow-origin", action="append", help="a web origin to answer (NIANLUN_MCP_ORIGINS)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
