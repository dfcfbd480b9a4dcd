"""What is past its retention goes, also where nobody talks any more."""

from __future__ import annotations

import asyncio

from nianlun.orchestrator.v1 import orchestrator_pb2 as o
from services.common.settings import JobSettings
from tests.support.db import Database
from tests.support.fake_llm import FakeLlm
from tests.support.requests import new_id
from tests.support.stack import Stack


async def test_a_purge_takes_old_runs_and_sessions_and_comes_back_for_the_rest(
    fresh_database: Database, fake_llm: FakeLlm
) -> None:
    front = Stack(
        fresh_database,
        llm=fake_llm,
        workers=False,
        services=("orchestrator",),
        targets=dict.fromkeys(("embedder", "memory", "retriever"), "127.0.0.1:9"),
        overrides={"orchestrator": {"jobs": JobSettings(poll_s=0.1)}},
    )
    await front.start()
    try:
        client = front.client()

        async def chat(session: str) -> None:
            asked = o.ChatInput(message="你好。", session_id=session, use_memory=False)
            await client.orchestrator.Chat(o.ChatRequest(input=asked, request_id=new_id()))

        async def due_and_done(rounds: int) -> None:
            """The purge that waits becomes due; it has run once `rounds` of them have ended."""
            with fresh_database.connect() as owner:
                owner.execute("SET search_path = orchestrator_queue")
                owner.execute("UPDATE procrastinate_jobs SET scheduled_at = now()")
            async with asyncio.timeout(30):
                while True:
                    with fresh_database.connect() as owner:
                        row = owner.execute(
                            "SELECT count(*) AS n FROM orchestrator.jobs"
                            " WHERE kind = 'purge_runs' AND state = 'succeeded'"
                        ).fetchone()
                    if row is not None and row["n"] == rounds:
                        return
                    await asyncio.sleep(0.1)

        def left() -> tuple[list[str], list[str], list[str]]:
            def sessions(table: str) -> list[str]:
                with fresh_database.connect() as owner:
                    rows = owner.execute(f"SELECT DISTINCT session_id FROM orchestrator.{table}")
                    return sorted(row["session_id"] for row in rows.fetchall())

            return sessions("runs"), sessions("sessions"), sessions("session_messages")

        def aged(session: str) -> None:
            with fresh_database.connect() as owner:
                for table, column in (("runs", "create_time"), ("sessions", "update_time")):
                    owner.execute(
                        f"UPDATE orchestrator.{table} SET {column} = now() - interval '31 days'"
                        " WHERE session_id = %s",
                        (session,),
                    )

        await chat("old")
        await chat("new")
        aged("old")
        await due_and_done(1)
        assert left() == (["new"], ["new"], ["new"])
        # Nobody talks to it any more; what is left is found when its time has come.
        aged("new")
        await due_and_done(2)
        assert left() == ([], [], [])
        with fresh_database.connect() as owner:
            waiting = owner.execute(
                "SELECT 1 FROM orchestrator.jobs WHERE kind = 'purge_runs' AND state = 'queued'"
            ).fetchall()
        assert not waiting
    finally:
        await front.stop()
