"""Same request_id, same result."""

import asyncio

import pytest

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2
from services.common import errors, idempotency
from services.common.db import Database
from services.common.idempotency import replay_or_run
from tests.integration.common.conftest import settings_of, until

Response = memory_pb2.CancelJobResponse


def _request(request_id: str, job_id: str = "j") -> memory_pb2.CancelJobRequest:
    return memory_pb2.CancelJobRequest(job_id=job_id, request_id=request_id)


async def _once(db: Database, tenant: str, request, runs: list[str], fail: bool = False):
    async with db.tenant(tenant) as conn:

        async def run():
            runs.append(request.request_id)
            await asyncio.sleep(0.05)
            if fail:
                raise KeyError("failed")
            return Response(job=common_pb2.Job(job_id=str(len(runs))))

        return await replay_or_run(conn, "memory", request, Response, run)


async def test_w13_the_second_call_gets_the_first_answer(memory_db: Database):
    runs: list[str] = []
    first = await _once(memory_db, "idem-1", _request("r"), runs)
    assert await _once(memory_db, "idem-1", _request("r"), runs) == first
    assert runs == ["r"]


async def test_parallel_duplicates_run_once(chassis_db):
    db = Database(settings_of(chassis_db, pool_max=8))
    await db.open()
    runs: list[str] = []
    answers = await asyncio.gather(
        *(asyncio.create_task(_once(db, "idem-2", _request("r"), runs)) for _ in range(8))
    )
    await db.close()
    assert runs == ["r"]
    assert all(answer == answers[0] for answer in answers)


async def test_when_the_first_fails_the_duplicate_does_the_work(memory_db: Database):
    runs: list[str] = []
    first = asyncio.create_task(_once(memory_db, "idem-3", _request("r"), runs, fail=True))
    await until(lambda: runs == ["r"])
    second = asyncio.create_task(_once(memory_db, "idem-3", _request("r"), runs))
    with pytest.raises(KeyError):
        await first
    assert (await second).job.job_id == "2"


async def test_another_request_under_the_same_id_is_refused(memory_db: Database):
    runs: list[str] = []
    await _once(memory_db, "idem-4", _request("r"), runs)
    with pytest.raises(errors.DomainError, match="REQUEST_ID_REUSED"):
        await _once(memory_db, "idem-4", _request("r", job_id="other"), runs)


async def test_ids_are_per_tenant(memory_db: Database):
    runs: list[str] = []
    await _once(memory_db, "idem-5a", _request("r"), runs)
    await _once(memory_db, "idem-5b", _request("r", job_id="other"), runs)
    assert runs == ["r", "r"]


async def test_old_answers_are_purged_and_fresh_ones_kept(chassis_db, memory_db: Database):
    runs: list[str] = []
    await _once(memory_db, "idem-6", _request("old"), runs)
    await _once(memory_db, "idem-6", _request("new"), runs)
    with chassis_db.connect() as owner:
        owner.execute(
            "UPDATE memory.requests SET create_time = now() - interval '3 days'"
            " WHERE request_id = 'old' AND tenant_id = 'idem-6'"
        )
    async with memory_db.tenant("idem-6") as conn:
        assert await idempotency.purge(conn, "memory") == 1
    await _once(memory_db, "idem-6", _request("new"), runs)
    assert runs == ["old", "new"]
