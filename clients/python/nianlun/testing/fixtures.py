"""Fixtures for pytest: ``pytest_plugins = ["nianlun.testing.fixtures"]`` in your conftest.py.

One stack a session, one tenant a test: tests do not see each other's users and documents.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nianlun.client import Client
from nianlun.connection import Connection
from nianlun.testing.stacks import RunningStack, running


@pytest.fixture(scope="session")
def nianlun_stack() -> Iterator[RunningStack]:
    """The stack of this session; override it to give the services settings."""
    with running() as started:
        yield started


@pytest.fixture
def nianlun_connection(nianlun_stack: RunningStack) -> Connection:
    """A tenant of its own: ``AsyncClient.of(nianlun_connection)`` in asyncio tests."""
    return nianlun_stack.new_tenant()


@pytest.fixture
def nianlun_client(nianlun_connection: Connection) -> Iterator[Client]:
    """A blocking client of that tenant."""
    with Client.of(nianlun_connection) as client:
        yield client
