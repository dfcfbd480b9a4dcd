"""The monitoring port of a process: ``/metrics`` for Prometheus, ``/healthz`` for probes.

Workers serve no RPC; this is how a container or a cluster learns that one is ready.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from services.common.errors import StartupError

HEALTH_PATH = "/healthz"


class Ready(Protocol):
    """What ``/healthz`` reports."""

    @property
    def ready(self) -> bool:
        """True when the last round of checks found nothing wrong and no shutdown has begun."""

    @property
    def reasons(self) -> Mapping[str, str]:
        """What is wrong, by check."""


class MonitorServer:
    """Answers in threads of its own, so that a busy event loop does not look like a dead one."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, state: Ready) -> None:
        """Binds. StartupError when the address is taken."""
        try:
            self._server: WSGIServer = make_server(
                host,
                port,
                _application(registry, state),
                server_class=ThreadingWSGIServer,
                handler_class=_Quiet,
            )
        except OSError as error:
            raise StartupError(
                f"The monitoring port {host}:{port} cannot be opened: {error.strerror}. Each"
                " process of a machine needs a NIANLUN_METRICS_PORT of its own."
            ) from error
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="monitor", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(WSGIRequestHandler):
    """Writes no access log: probes come every few seconds."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        return


def _application(registry: CollectorRegistry, state: Ready) -> Callable[..., Iterable[bytes]]:
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != HEALTH_PATH:
            body: Iterable[bytes] = metrics(environ, start_response)
            return body
        reasons = dict(state.reasons)
        if state.ready:
            status, text = "200 OK", "ready\n"
        else:
            status = "503 Service Unavailable"
            text = "".join(f"{name}: {why}\n" for name, why in sorted(reasons.items())) or "ends\n"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [text.encode()]

    return answer
