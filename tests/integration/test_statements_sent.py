"""The services as they run over the coordinator of a Citus cluster (here a plain PostgreSQL): every
RPC still works, and every statement that reaches the database could be distributed.
"""

from __future__ import annotations

import grpc
import pytest

from services.common.db import connection
from tests.support import sqltree, statements
from tests.support.calls import invoke
from tests.support.canary import plant
from tests.support.contract import BY_NAME
from tests.support.db import Databases
from tests.support.requests import DESTRUCTIVE, REQUESTS
from tests.support.stack import Stack

pytestmark = pytest.mark.timeout(300)

Code = grpc.StatusCode
SERVICES = ("retriever", "memory", "orchestrator")
BROKEN = {Code.INTERNAL, Code.UNKNOWN, Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED}


async def test_every_statement_of_every_rpc_can_be_distributed(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: set[str] = set()
    filled = connection._filled

    def recorded(conn, query, params):
        # Workers of other stacks may be running in this process.
        if conn.info.dbname == database.name:
            sent.add(query if isinstance(query, str) else _text(query))
        return filled(conn, query, params)

    def _text(query) -> str:
        return query.decode() if isinstance(query, bytes) else query.as_string()

    monkeypatch.setattr(connection, "_filled", recorded)
    database = databases.new()
    stack = Stack(database, overrides={service: {"citus": True} for service in SERVICES})
    await stack.start()
    try:
        client = stack.client(database.tenant())
        ids = await plant(client)
        for name in sorted(BY_NAME, key=lambda name: (name in DESTRUCTIVE, name)):
            rpc = BY_NAME[name]
            outcome = await invoke(
                stack.channel(rpc.service),
                rpc,
                REQUESTS[name](ids),
                metadata=client.tenant.metadata,
                timeout=30.0,
            )
            assert outcome.code not in BROKEN, f"{name}: {outcome}"
    finally:
        await stack.stop()

    assert {one for one in sent if "SET " in one and ";" in one} == set()
    assert any(one.startswith("SET LOCAL nianlun.tenant_id") for one in sent)
    with database.connect() as owner:
        rules = sqltree.rules_of(owner)
        about = [one for one in map(statements.numbered, sent) if one.lstrip()[:4] != "SET "]
        faults = {one: found for one in about if (found := sqltree.faults(one, rules))}
    assert faults == {}
    tables = {table for one in about for table in sqltree.tables(one)}
    assert len(tables & rules.tables) > 25
