"""Fixtures for every test.

- `database`: one migrated database for the whole session, shared by tests that make own tenants
- `fresh_database`: a migrated database for one test, where shared state would matter
- `databases`: the factory behind both
- `tenant`: a new tenant of `database` with one key
- `fake_llm`: a scriptable language model that speaks real HTTP; reset for every test
- `stack`: all services in-process, behind real sockets, over `database`
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import structlog

from tests.support import db
from tests.support.fake_llm import FakeLlm

if TYPE_CHECKING:
    from tests.support.stack import Stack

# What the developer's shell says about models and addresses is not for tests.
for _name in [name for name in os.environ if name.startswith(("LLM_", "NIANLUN_"))]:
    if _name != db.DSN_VARIABLE:
        del os.environ[_name]
# No test may reach a model hub, whatever it loads; set before any of those libraries is imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")


def pytest_configure() -> None:
    # The default tracebacks show local variables: keys, texts, and pages of both.
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S"),
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--db",
        choices=("auto", "dsn", "container", "embedded"),
        default="auto",
        help=f"PostgreSQL of the tests: {db.DSN_VARIABLE}, Docker ({db.IMAGE}) or embedded; "
        "auto takes the first that is there",
    )


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[db.Server]:
    """The server; only tests that stop it need it by name."""
    with db.serve(request.config.getoption("--db")) as server:
        yield server


@pytest.fixture(scope="session")
def databases(postgres: db.Server) -> Iterator[db.Databases]:
    factory = db.Databases(postgres)
    yield factory
    factory.drop_all()


@pytest.fixture(scope="session")
def database(databases: db.Databases) -> db.Database:
    return databases.new()


@pytest.fixture
def fresh_database(databases: db.Databases) -> db.Database:
    return databases.new()


@pytest.fixture
def tenant(database: db.Database) -> db.Tenant:
    return database.tenant()


@pytest.fixture(scope="session")
def _llm_server() -> Iterator[FakeLlm]:
    llm = FakeLlm()
    llm.start()
    yield llm
    llm.stop()


@pytest.fixture
def fake_llm(_llm_server: FakeLlm) -> FakeLlm:
    _llm_server.reset()
    return _llm_server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stack(database: db.Database) -> AsyncIterator[Stack]:
    """No language model: extractive answers and extraction by rules."""
    from tests.support.stack import Stack

    running = Stack(database)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()
