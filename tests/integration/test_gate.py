# ruff: noqa: E501 - documents as they are
"""S7: the gate sees all of a hit's text, short or long, in either language."""

from __future__ import annotations

import pytest

from nianlun.retriever.v1 import retriever_pb2 as pb
from tests.integration.retriever.conftest import Shelf
from tests.support.db import Tenant
from tests.support.stack import Stack

DOCUMENTS = {
    "server": "新华三 R6900 G5 服务器最多支持 96 条 DDR5 内存，单机最大容量 12TB，配备 4 个热插拔电源。",
    "vpn": "The VPN client must be updated every quarter. Contact the IT helpdesk if the connection drops"
    " after login; two-factor authentication is mandatory.",
    "db": "Billing runs on PostgreSQL 18 with logical replication. Backups are taken nightly at 02:00 and"
    " kept for 35 days.",
    "parental": "Parental leave is 16 weeks paid for all new parents, and may be taken in two blocks within"
    " the first year.",
}  # fmt: skip
ASKED = {
    "服务器能插多少内存": "server",
    "how often update vpn": "vpn",
    "vpn 断了找谁": "vpn",
    "VPN 多久更新一次": "vpn",
    "备份保留多久": "db",
    "billing 用的什么数据库": "db",
    "PostgreSQL 是哪个版本": "db",
    "parental leave 有几周": "parental",
}
OFF_TOPIC = (
    "aubergines",
    "sourdough recipe",
    "how do vaccines work",
    "红烧肉怎么做",
    "NBA 比赛结果",
)


@pytest.fixture
async def shelf(stack: Stack, tenant: Tenant) -> Shelf:
    shelf = Shelf(stack.client(tenant))
    await shelf.create()
    await shelf.put(DOCUMENTS)
    return shelf


async def test_s07_questions_in_either_language_pass_and_strange_ones_do_not(shelf: Shelf) -> None:
    missed = [
        asked
        for asked, wanted in ASKED.items()
        if (await shelf.found(asked, gate=pb.GATE_MODE_ON))[:1] != [wanted]
    ]
    assert not missed
    let_through = [q for q in OFF_TOPIC if await shelf.found(q, gate=pb.GATE_MODE_ON)]
    assert not let_through
