"""The ASGI application: routes, error shapes, middleware."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from services.common.errors import DomainError
from services.common.telemetry import Telemetry
from services.orchestrator.gateway.backends import Backends
from services.orchestrator.gateway.chat import ChatEndpoint
from services.orchestrator.gateway.embeddings import EmbedderEndpoints
from services.orchestrator.gateway.errors import HttpError, domain_response, http_response
from services.orchestrator.gateway.health import HealthEndpoint
from services.orchestrator.gateway.middleware import BodyLimit, RequestMiddleware
from services.orchestrator.gateway.rpc import RpcEndpoint
from services.orchestrator.gateway.settings import GatewaySettings
from services.orchestrator.gateway.telemetry import TelemetryMiddleware

STATIC = Path(__file__).parent / "static"


def build(settings: GatewaySettings, backends: Backends, telemetry: Telemetry) -> FastAPI:
    """The application over these backends; one a ``telemetry``, whose metrics it adds to."""
    app = FastAPI(title="Nianlun", docs_url=None, redoc_url=None, openapi_url=None)
    chat = ChatEndpoint(backends)
    embedder = EmbedderEndpoints(backends)
    add = app.router.add_route
    add("/v1/chat/completions", chat.create, methods=["POST"])
    add("/v1/embeddings", embedder.embeddings, methods=["POST"])
    add("/v1/rerank", embedder.rerank, methods=["POST"])
    add("/v1/models", embedder.models, methods=["GET"])
    add("/v1/models/{model:path}", embedder.model, methods=["GET"])
    add("/api/{service}/{method}", RpcEndpoint(backends).call, methods=["POST"])
    add("/healthz", HealthEndpoint(backends).check, methods=["GET"])
    add("/", _console, methods=["GET"])
    app.mount("/console", StaticFiles(directory=STATIC, check_dir=False), name="console")
    app.add_exception_handler(DomainError, _domain_error)
    app.add_exception_handler(HttpError, _http_error)
    app.add_exception_handler(HTTPException, _starlette_error)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(BodyLimit, limit=settings.max_body_bytes)
    if settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=["GET", "POST"],
            # Clients send headers of their own (x-stainless-..., openai-...), and more with each
            # version. What lets a page in is its origin; no cookie goes along.
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
        )
    app.add_middleware(RequestMiddleware)
    app.add_middleware(TelemetryMiddleware, telemetry=telemetry, routes=app.router.routes)
    return app


async def _console(request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


async def _domain_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DomainError)
    return domain_response(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return http_response(error)


async def _starlette_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return http_response(HttpError(error.status_code, str(error.detail)))


async def _unexpected(request: Request, error: Exception) -> Response:
    """Clients of OpenAI's API read the body of every error."""
    return http_response(HttpError(500, "internal error", code="internal"))
