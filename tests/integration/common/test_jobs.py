"""Background work: ends in a visible state, is leased, retried, and runs once in effect."""

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from procrastinate.exceptions import ConnectorException
from procrastinate.manager import JobManager
from pydantic import SecretStr

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2
from nianlun.retriever.v1 import retriever_pb2
from services.common import context, deadlines, errors
from services.common.context import CallContext, Caller
from services.common.db import Connection, Database
from services.common.jobs import (
    JobCancelled,
    JobRecord,
    JobRun,
    Jobs,
    LeaseLost,
    Quarantine,
    Retry,
    attempt,
)
from services.common.jobs.attempt import Attempts
from services.common.jobs.rpc import JobRpcs
from services.common.settings import JobSettings
from tests.integration.common.conftest import CHASSIS_TABLES, settings_of, until
from tests.support.logs import logging_to

FAST = JobSettings(
    poll_s=0.05,
    heartbeat_s=0.1,
    lease_s=0.6,
    stalled_check_s=0.1,
    backoff_base_s=0.01,
    backoff_max_s=0.05,
    max_failures=3,
    watch_poll_s=0.02,
    shutdown_s=0.2,
)
TENANT = "jobs-t"


@pytest.fixture(scope="session")
def jobs_database(databases):
    """A database of these tests: workers take whatever lies in the queue."""
    made = databases.new()
    with made.connect() as conn:
        conn.execute(CHASSIS_TABLES)
    return made


@pytest.fixture
async def jobs_db(jobs_database) -> AsyncIterator[Database]:
    with jobs_database.connect() as conn:
        conn.execute("TRUNCATE memory_queue.procrastinate_jobs CASCADE")
        conn.execute("TRUNCATE memory.jobs, memory.requests, memory.rings")
    db = Database(settings_of(jobs_database, pool_max=4), schema="memory")
    await db.open()
    db.test_database = jobs_database  # type: ignore[attr-defined]
    yield db
    await db.close()


def _jobs(db: Database, settings: JobSettings = FAST) -> Jobs:
    key = SecretStr("nl_" + "k" * 43)
    return Jobs(db, "memory", settings_of(db.test_database), settings, service_key=key)


@asynccontextmanager
async def _working(jobs: Jobs, concurrency: int = 4) -> AsyncIterator[None]:
    stop = asyncio.Event()
    worker = asyncio.create_task(jobs.run_worker(stop, concurrency))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(10):
            await worker


async def _enqueue(db: Database, jobs: Jobs, kind: str = "k", **options) -> str:
    async with db.tenant(TENANT) as conn:
        return await jobs.enqueue(conn, kind, {"ring_id": "r"}, **options)


async def _ended(jobs: Jobs, job_id: str, timeout_s: float = 10):
    async with asyncio.timeout(timeout_s):
        async for job in jobs.watch(TENANT, job_id):
            last = job
    return last


async def test_a_job_is_done_and_says_so(jobs_db: Database):
    jobs = _jobs(jobs_db)

    async def handler(run: JobRun):
        call = context.current()
        assert (call.caller.tenant_id, call.rpc, call.request_id) == (TENANT, "job/k", run.job_id)
        assert deadlines.remaining(0) > 1
        async with jobs_db.tenant() as conn:
            await run.fence(conn)
        await run.progress(1, 2)
        await run.item_error("item 2", "EMPTY_TEXT", "nothing left")
        return {"turns": "1"}

    jobs.register("k", handler)
    job_id = await _enqueue(jobs_db, jobs, total=2, unit="turns")
    assert (await jobs.get(TENANT, job_id)).state == "queued"
    async with _working(jobs):
        job = (await _ended(jobs, job_id)).message()
    assert job.state == common_pb2.JOB_STATE_SUCCEEDED
    assert (job.done, job.total, job.unit, job.attempts) == (2, 2, "turns", 1)
    assert dict(job.result) == {"turns": "1"}
    assert dict(job.subject) == {"ring_id": "r"}
    assert job.item_errors[0].error.reason == common_pb2.ERROR_REASON_EMPTY_TEXT
    assert job.HasField("end_time")


async def test_a_job_is_part_of_the_callers_transaction(jobs_db: Database):
    jobs = _jobs(jobs_db)
    job_id = ""
    with contextlib.suppress(KeyError):
        async with jobs_db.tenant(TENANT) as conn:
            job_id = await jobs.enqueue(conn, "k", {})
            raise KeyError
    with pytest.raises(errors.DomainError, match="NOT_FOUND"):
        await jobs.get(TENANT, job_id)
    with jobs_db.test_database.connect() as owner:
        rows = owner.execute("SELECT 1 FROM memory_queue.procrastinate_jobs").fetchall()
    assert rows == []


async def test_the_queue_carries_ids_only(jobs_db: Database):
    job_id = await _enqueue(jobs_db, _jobs(jobs_db))
    with jobs_db.test_database.connect() as owner:
        [row] = owner.execute("SELECT args FROM memory_queue.procrastinate_jobs").fetchall()
    assert row["args"] == {"tenant_id": TENANT, "job_id": job_id}


async def test_w05_fifty_refusals_never_end_a_job(jobs_db: Database):
    jobs, calls = _jobs(jobs_db), []

    async def handler(run: JobRun):
        calls.append(run.attempt)
        if len(calls) <= 50:
            raise Retry("OVERLOADED", after_s=0.001, message="429")

    jobs.register("k", handler)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs):
        job = await _ended(jobs, job_id, 30)
    assert (job.state, job.attempts, job.failures) == ("succeeded", 51, 0)
    assert calls == list(range(1, 52))


async def test_w07_garbage_is_tried_a_bounded_number_of_times_then_quarantined(jobs_db: Database):
    jobs = _jobs(jobs_db)

    async def broken(run: JobRun):
        raise ValueError("private text")

    async def poison(run: JobRun):
        raise Quarantine("MODEL_FAILED", "unreadable")

    jobs.register("broken", broken)
    jobs.register("poison", poison)
    ids = [await _enqueue(jobs_db, jobs, kind) for kind in ("broken", "poison")]
    async with _working(jobs):
        first, second = [await _ended(jobs, job_id) for job_id in ids]
    assert (first.state, first.attempts, first.error_reason) == ("failed", 3, "INTERNAL")
    assert first.error_message == "ValueError"
    assert (second.state, second.attempts, second.error_reason) == ("failed", 1, "MODEL_FAILED")
    failed = await jobs.list(TENANT, states=["failed"])
    assert {job.job_id for job in failed} == set(ids)


async def test_w04_an_attempt_past_its_time_is_retried_and_counts_once(jobs_db: Database):
    jobs, effects = _jobs(jobs_db), []

    async def handler(run: JobRun):
        if run.attempt == 1:
            await asyncio.sleep(30)
        seen = await jobs.get(TENANT, run.job_id)
        effects.append((run.attempt, seen.error_reason))

    jobs.register("k", handler, timeout_s=0.2)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs):
        job = await _ended(jobs, job_id)
    assert (job.state, job.attempts) == ("succeeded", 2)
    assert effects == [(2, "DEADLINE_EXCEEDED")]


async def test_a_window_ends_even_retryable_failures(jobs_db: Database):
    settings = FAST.model_copy(update={"retry_window_s": 0.3})
    jobs = _jobs(jobs_db, settings)

    async def handler(run: JobRun):
        raise errors.dependency_unavailable("embedder")

    jobs.register("k", handler)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs):
        job = await _ended(jobs, job_id)
    assert (job.state, job.error_reason) == ("failed", "DEPENDENCY_UNAVAILABLE")


async def test_cancel_while_waiting_and_while_running(jobs_db: Database):
    jobs, started = _jobs(jobs_db), asyncio.Event()

    async def handler(run: JobRun):
        started.set()
        await until(run.cancelled)
        raise JobCancelled

    jobs.register("k", handler)
    waiting = await _enqueue(jobs_db, jobs, lock="one", delay_s=60)
    behind = await _enqueue(jobs_db, jobs, lock="one")
    assert (await jobs.cancel(TENANT, waiting)).state == "cancelled"
    async with _working(jobs):
        async with asyncio.timeout(5):
            await started.wait()  # the cancelled job does not hold the lock
        assert (await jobs.cancel(TENANT, behind)).cancel_requested
        job = await _ended(jobs, behind)
    assert job.state == "cancelled"
    assert (await jobs.cancel(TENANT, behind)).state == "cancelled"


async def test_cancel_between_attempts(jobs_db: Database):
    jobs = _jobs(jobs_db)

    async def handler(run: JobRun):
        await jobs.cancel(TENANT, run.job_id)
        raise Retry

    jobs.register("k", handler)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs):
        assert (await _ended(jobs, job_id)).state == "cancelled"


async def test_replay_runs_a_failed_job_again(jobs_db: Database):
    jobs, healthy = _jobs(jobs_db), []

    async def handler(run: JobRun):
        if not healthy:
            raise Quarantine("MODEL_FAILED", "the model answered nothing")

    jobs.register("k", handler)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs):
        failed = await _ended(jobs, job_id)
        assert (failed.state, failed.error_reason) == ("failed", "MODEL_FAILED")
        assert failed.error_message == "the model answered nothing"
        healthy.append(1)
        assert (await jobs.replay(TENANT, job_id)).state == "queued"
        assert (await _ended(jobs, job_id)).state == "succeeded"
    # What has succeeded has no error any more, however it is looked at.
    [listed] = await jobs.list(TENANT)
    for job in (await jobs.get(TENANT, job_id), listed):
        assert (job.error_reason, job.error_message) == (None, None)
        assert not job.message().HasField("error")
    with pytest.raises(errors.DomainError, match="FAILED_PRECONDITION"):
        await jobs.replay(TENANT, job_id)
    # Who cancels is always a little late: the job says itself what became of it.
    assert (await jobs.cancel(TENANT, job_id)).state == "succeeded"


@pytest.mark.parametrize("resumes", [True, False])
async def test_what_an_attempt_noted_stays_where_the_next_goes_on(jobs_db: Database, resumes: bool):
    jobs = _jobs(jobs_db)

    async def handler(run: JobRun):
        if run.attempt == 1:
            async with jobs_db.tenant() as conn:
                await run.item_error_in(conn, "item 2", "EMPTY_TEXT", "nothing left")
                await run.keep(conn, {"turns": "3"})
            raise Retry
        return {"turns": str(int(run.result.get("turns", 0)) + 1)}

    jobs.register("k", handler, resumes=resumes)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs):
        job = await _ended(jobs, job_id)
    assert (job.state, job.attempts) == ("succeeded", 2)
    assert dict(job.result) == {"turns": "4" if resumes else "1"}
    assert [item["item_id"] for item in job.item_errors] == (["item 2"] if resumes else [])


async def test_what_is_kept_without_the_lease_is_not(jobs_db: Database):
    jobs, refused = _jobs(jobs_db), []

    async def handler(run: JobRun):
        stranger = replace(run, lease=str(uuid.uuid4()))
        for call in (
            lambda conn: stranger.keep(conn, {"turns": "9"}),
            lambda conn: stranger.item_error_in(conn, "i", "EMPTY_TEXT", ""),
        ):
            async with jobs_db.tenant() as conn:
                try:
                    await call(conn)
                except LeaseLost:
                    refused.append(call)

    jobs.register("k", handler, resumes=True)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs):
        job = await _ended(jobs, job_id)
    assert (len(refused), dict(job.result), job.item_errors) == (2, {}, [])


async def test_an_old_job_goes_with_what_was_kept_for_it(
    jobs_db: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(attempt, "_TIDY_EVERY", 1)
    jobs, forgotten = _jobs(jobs_db), []

    async def handler(run: JobRun):
        if run.kind == "poison":
            raise Quarantine("MODEL_FAILED")

    async def forget(conn, subject):
        await conn.execute("DELETE FROM memory.rings WHERE tenant_id = %s", (TENANT,))
        forgotten.append(dict(subject))

    jobs.register("poison", handler, forget=forget)
    jobs.register("k", handler)
    old = await _enqueue(jobs_db, jobs, "poison")
    async with jobs_db.tenant(TENANT) as conn:
        await conn.execute("INSERT INTO memory.rings VALUES (%s, 'kept')", (TENANT,))
    async with _working(jobs):
        assert (await _ended(jobs, old)).state == "failed"
        fresh = await _enqueue(jobs_db, jobs, "poison")
        assert (await _ended(jobs, fresh)).state == "failed"
        assert forgotten == []
        with jobs_db.test_database.connect() as owner:
            owner.execute(
                "UPDATE memory.jobs SET end_time = now() - interval '31 days' WHERE job_id = %s",
                (old,),
            )
        await _ended(jobs, await _enqueue(jobs_db, jobs))
    assert {job.job_id for job in await jobs.list(TENANT, states=["failed"])} == {fresh}
    assert forgotten == [{"ring_id": "r"}]
    with jobs_db.test_database.connect() as owner:
        assert owner.execute("SELECT 1 FROM memory.rings").fetchall() == []


async def test_dedupe_joins_a_waiting_job_but_not_a_running_one(jobs_db: Database):
    jobs, runs, go = _jobs(jobs_db), [], asyncio.Event()

    async def handler(run: JobRun):
        runs.append(run.job_id)
        await go.wait()

    jobs.register("k", handler)
    first = await _enqueue(jobs_db, jobs, dedupe="session 1")
    assert await _enqueue(jobs_db, jobs, dedupe="session 1") == first
    assert await _enqueue(jobs_db, jobs, dedupe="session 2") != first
    async with _working(jobs):
        await until(lambda: first in runs)
        second = await _enqueue(jobs_db, jobs, dedupe="session 1")
        assert second != first
        go.set()
        for job_id in (first, second):
            assert (await _ended(jobs, job_id)).state == "succeeded"


async def test_a_job_joined_by_a_writer_starts_after_the_writer_has_committed(jobs_db: Database):
    jobs, seen = _jobs(jobs_db), []

    async def handler(run: JobRun):
        async with jobs_db.tenant() as conn:
            cursor = await conn.execute("SELECT count(*) AS n FROM memory.rings")
            seen.append((await cursor.fetchone())["n"])

    async def marker(run: JobRun):
        passed.set()

    passed = asyncio.Event()
    jobs.register("k", handler)
    jobs.register("marker", marker)
    job_id = await _enqueue(jobs_db, jobs, dedupe="s", delay_s=0.2)
    # Due after it: once this one is done, the worker has come to the first one's turn, too.
    await _enqueue(jobs_db, jobs, "marker", delay_s=0.6)
    async with _working(jobs):
        async with jobs_db.tenant(TENANT) as conn:
            assert await jobs.enqueue(conn, "k", {}, dedupe="s") == job_id
            await conn.execute("INSERT INTO memory.rings VALUES (%s, 'late')", (TENANT,))
            async with asyncio.timeout(30):
                await passed.wait()
        await _ended(jobs, job_id)
    assert seen == [1]


async def test_one_lock_one_at_a_time_in_order(jobs_db: Database):
    jobs, running, order = _jobs(jobs_db), [], []

    async def handler(run: JobRun):
        running.append(run.job_id)
        assert len(running) == 1
        if len(order) == 0 and run.attempt == 1:
            running.clear()
            raise Retry  # keeps its place although it waits
        await asyncio.sleep(0.02)
        order.append(run.job_id)
        running.clear()

    jobs.register("k", handler)
    ids = [await _enqueue(jobs_db, jobs, lock="user 1") for _ in range(4)]
    async with _working(jobs):
        for job_id in ids:
            assert (await _ended(jobs, job_id)).state == "succeeded"
    assert order == ids


@pytest.mark.parametrize("gone", [False, True], ids=["finished", "database gone"])
async def test_a_worker_that_is_stopped_while_it_finishes_a_row_tells_of_no_restart(
    jobs_db: Database, monkeypatch: pytest.MonkeyPatch, gone: bool
):
    jobs, finishing = _jobs(jobs_db), asyncio.Event()
    finish = JobManager.finish_job

    async def finish_job(self: JobManager, *arguments, **options) -> None:
        finishing.set()
        await asyncio.sleep(2 * FAST.shutdown_s)
        if gone:
            raise ConnectorException("gone")
        await finish(self, *arguments, **options)

    async def handler(run: JobRun):
        return {}

    monkeypatch.setattr(JobManager, "finish_job", finish_job)
    jobs.register("k", handler)
    job_id = await _enqueue(jobs_db, jobs)
    told = io.StringIO()
    with logging_to(told, "worker"):
        async with _working(jobs):
            await finishing.wait()
    assert (await jobs.get(TENANT, job_id)).state == "succeeded"
    assert "worker_restarts" not in told.getvalue()
    with jobs_db.test_database.connect() as owner:
        rows = owner.execute("SELECT 1 FROM memory_queue.procrastinate_jobs").fetchall()
    assert len(rows) == int(gone)
    assert ("worker_left_a_row" in told.getvalue()) == gone


async def test_a_row_that_could_not_be_finished_holds_nobody_up(
    jobs_db: Database, monkeypatch: pytest.MonkeyPatch
):
    """The database goes away in the one moment between the end of a job and that of its row."""
    jobs = _jobs(jobs_db)
    ran: list[str] = []
    finish = JobManager.finish_job
    failures = iter([ConnectorException("gone")])

    async def finish_job(self: JobManager, *arguments, **options) -> None:
        for failure in failures:
            raise failure
        await finish(self, *arguments, **options)

    async def handler(run: JobRun):
        ran.append(run.job_id)

    monkeypatch.setattr(JobManager, "finish_job", finish_job)
    jobs.register("k", handler)
    first = await _enqueue(jobs_db, jobs, lock="one after the other")
    second = await _enqueue(jobs_db, jobs, lock="one after the other")
    async with _working(jobs):
        assert (await _ended(jobs, second)).state == "succeeded"
    assert ran == [first, second]
    with jobs_db.test_database.connect() as owner:
        rows = owner.execute("SELECT 1 FROM memory_queue.procrastinate_jobs").fetchall()
    assert rows == []


async def test_a_zombie_writes_nothing_after_its_lease_is_gone(jobs_db: Database):
    jobs, lost = _jobs(jobs_db), []

    def taken_over(job_id: str):
        async def check() -> bool:
            return (await jobs.get(TENANT, job_id)).attempts > 1

        return check

    async def handler(run: JobRun):
        if run.attempt == 1:
            with jobs_db.test_database.connect() as owner:
                owner.execute(
                    "UPDATE memory_queue.procrastinate_workers SET last_heartbeat = 'epoch'"
                )
                owner.execute("SELECT memory.requeue_stalled('1 second')")
            await until(taken_over(run.job_id))
            try:
                async with jobs_db.tenant() as conn:
                    await run.fence(conn)
            except LeaseLost:
                lost.append(run.attempt)
                raise
        return {"by": str(run.attempt)}

    jobs.register("k", handler)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs):
        job = await _ended(jobs, job_id)
        # It looks only now and then whether another has taken over.
        async with asyncio.timeout(30):
            await until(lambda: lost != [])
    assert (job.state, job.attempts, dict(job.result)) == ("succeeded", 2, {"by": "2"})
    assert lost == [1]


async def test_w07_a_job_that_its_workers_die_of_ends(jobs_db: Database):
    jobs, died = _jobs(jobs_db), []

    async def handler(run: JobRun):
        died.append(run.attempt)
        with jobs_db.test_database.connect() as owner:
            owner.execute("UPDATE memory_queue.procrastinate_workers SET last_heartbeat = 'epoch'")
            owner.execute("SELECT memory.requeue_stalled('1 second')")
        await asyncio.sleep(30)

    jobs.register("k", handler, timeout_s=60)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs, concurrency=8):
        job = await _ended(jobs, job_id, 60)
    assert (job.state, job.error_reason) == ("failed", "INTERNAL")
    assert died == [1, 2, 3]
    assert "died" in (job.error_message or "")


@pytest.mark.parametrize("noted", ["progress", "keep"])
async def test_w07_workers_that_die_while_a_job_gets_further_do_not_end_it(
    jobs_db: Database, noted: str
):
    jobs = _jobs(jobs_db)

    async def handler(run: JobRun):
        if run.attempt == 6:
            return {"attempts": str(run.attempt)}
        if noted == "progress":
            await run.progress(run.attempt)
        else:
            async with jobs_db.tenant(run.tenant_id) as conn:
                await run.keep(conn, {"at": str(run.attempt)})
        with jobs_db.test_database.connect() as owner:
            owner.execute("UPDATE memory_queue.procrastinate_workers SET last_heartbeat = 'epoch'")
            owner.execute("SELECT memory.requeue_stalled('1 second')")
        await asyncio.sleep(30)
        return None

    jobs.register("k", handler, timeout_s=60, resumes=True)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs, concurrency=8):
        job = await _ended(jobs, job_id, 60)
    assert (job.state, job.attempts) == ("succeeded", 6)


async def test_an_outage_in_which_an_end_cannot_be_written_is_no_death(
    jobs_db: Database, monkeypatch: pytest.MonkeyPatch
):
    jobs, attempts = _jobs(jobs_db), []
    after_failure = Attempts._after_failure

    async def handler(run: JobRun):
        attempts.append(run.attempt)
        if len(attempts) < 6:
            raise Retry

    async def away(self: Attempts, *arguments):
        if len(attempts) < 5:
            raise errors.dependency_unavailable("database")
        return await after_failure(self, *arguments)

    monkeypatch.setattr(Attempts, "_after_failure", away)
    jobs.register("k", handler)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs):
        job = await _ended(jobs, job_id, 30)
    assert (job.state, job.failures, job.attempts) == ("succeeded", 0, 6)


_WORKER = """
    import asyncio, sys
    from pydantic import SecretStr
    from services.common.db import Database
    from services.common.jobs import Jobs
    from services.common.settings import DatabaseSettings, JobSettings

    async def main(dsn):
        database = DatabaseSettings(dsn=SecretStr(dsn))
        db = Database(database)
        await db.open()
        jobs = Jobs(db, "memory", database, JobSettings(heartbeat_s=0.1, lease_s=0.6, poll_s=0.05),
                    service_key=SecretStr("nl_x"))
        async def handler(run):
            async with db.tenant() as conn:
                await run.fence(conn)
                await conn.execute("INSERT INTO memory.rings VALUES (%s, 'half')", (run.tenant_id,))
                print("started", flush=True)
                await asyncio.sleep(600)
        jobs.register("k", handler)
        await jobs.run_worker(asyncio.Event())

    asyncio.run(main(sys.argv[1]))
"""


async def test_w15_a_killed_workers_job_runs_again_with_the_effect_of_once(
    jobs_db: Database, tmp_path: Path
):
    jobs = _jobs(jobs_db)
    job_id = await _enqueue(jobs_db, jobs)
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(_WORKER))
    process = subprocess.Popen(  # noqa: ASYNC220 - killed, not waited for
        [sys.executable, str(script), jobs_db.test_database.role_dsn("memory")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await asyncio.to_thread(process.stdout.readline) == b"started\n"
        assert (await jobs.get(TENANT, job_id)).state == "running"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()

    async def handler(run: JobRun):
        async with jobs_db.tenant() as conn:
            await run.fence(conn)
            await conn.execute("INSERT INTO memory.rings VALUES (%s, 'half')", (run.tenant_id,))

    jobs.register("k", handler)
    async with _working(jobs), _working(_second(jobs_db, handler)):
        job = await _ended(jobs, job_id)
    assert (job.state, job.attempts) == ("succeeded", 2)
    async with jobs_db.tenant(TENANT) as conn:
        cursor = await conn.execute("SELECT ring_id FROM memory.rings")
        assert [row["ring_id"] for row in await cursor.fetchall()] == ["half"]


def _second(db: Database, handler) -> Jobs:
    jobs = _jobs(db)
    jobs.register("k", handler)
    return jobs


async def test_a_stopping_worker_gives_back_what_it_cannot_finish(jobs_db: Database):
    jobs, started = _jobs(jobs_db), asyncio.Event()

    async def handler(run: JobRun):
        started.set()
        if run.attempt == 1:
            await asyncio.sleep(600)

    jobs.register("k", handler)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs):
        await started.wait()
    job = await jobs.get(TENANT, job_id)
    assert (job.state, job.error_reason, job.failures) == ("retrying", None, 0)
    async with _working(jobs):
        assert (await _ended(jobs, job_id)).state == "succeeded"


async def test_an_unknown_kind_waits_for_a_worker_that_knows_it(jobs_db: Database):
    jobs = _jobs(jobs_db)
    job_id = await _enqueue(jobs_db, jobs, "future")

    async def retrying() -> bool:
        return (await jobs.get(TENANT, job_id)).state == "retrying"

    async with _working(jobs):
        await until(retrying)
    jobs.register("future", _nothing)
    async with _working(jobs):
        assert (await _ended(jobs, job_id)).state == "succeeded"


async def _nothing(run: JobRun) -> None:
    return None


async def test_job_rpcs(jobs_db: Database):
    jobs = _jobs(jobs_db)
    rpcs = JobRpcs(jobs, jobs_db, "memory")
    ids = [await _enqueue(jobs_db, jobs) for _ in range(5)]
    with _called(TENANT):
        got = await rpcs.get(memory_pb2.GetJobRequest(job_id=ids[0]))
        assert got.job_id == ids[0]
        request, seen = memory_pb2.ListJobsRequest(page_size=2), []
        while True:
            page, request.page_token = await rpcs.list(request)
            seen += [job.job_id for job in page]
            if not request.page_token:
                break
        assert seen == ids[::-1]
        for listing in (memory_pb2.ListJobsRequest, retriever_pb2.ListJobsRequest):
            assert (await rpcs.list(listing(kind="k" * 64, states=[1] * 8)))[0] == []
            with pytest.raises(errors.DomainError, match="kind"):
                await rpcs.list(listing(kind="k" * 65))
            with pytest.raises(errors.DomainError, match="states"):
                await rpcs.list(listing(states=[1] * 9))
        cancel = memory_pb2.CancelJobRequest(job_id=ids[1], request_id="c1")
        first = await rpcs.cancel(cancel, memory_pb2.CancelJobResponse)
        assert first.job.state == common_pb2.JOB_STATE_CANCELLED
        replay = memory_pb2.ReplayJobRequest(job_id=ids[1], request_id="c1")
        again = await rpcs.replay(replay, memory_pb2.ReplayJobResponse)
        assert again.job.state == common_pb2.JOB_STATE_QUEUED
        assert await rpcs.cancel(cancel, memory_pb2.CancelJobResponse) == first
        assert (await jobs.get(TENANT, ids[1])).state == "queued", (
            "a repeated cancel is no second one"
        )
        for bad in ("nope", "", "00000000-0000-0000-0000-000000000000"):
            with pytest.raises(errors.DomainError):
                await rpcs.get(memory_pb2.GetJobRequest(job_id=bad))
    with _called("somebody-else"), pytest.raises(errors.DomainError, match="NOT_FOUND"):
        await rpcs.get(memory_pb2.GetJobRequest(job_id=ids[0]))
    with _called("somebody-else"), pytest.raises(errors.DomainError, match="NOT_FOUND"):
        await rpcs.cancel(
            memory_pb2.CancelJobRequest(job_id=ids[0], request_id="x"), memory_pb2.CancelJobResponse
        )


def _called(tenant: str):
    caller = Caller(tenant, "k", frozenset({"read", "write"}), "c")
    return context.bound(CallContext("rpc", "r", caller))


@pytest.mark.parametrize(
    "error", [Retry("DEPENDENCY_UNAVAILABLE"), Quarantine("NO_USE"), ValueError("x")]
)
async def test_that_a_job_has_failed_is_written_down_with_its_end(
    jobs_db: Database, error: Exception
):
    jobs = _jobs(jobs_db, FAST.model_copy(update={"retry_window_s": 0.1, "max_failures": 2}))
    told: list[tuple[str, str]] = []

    async def handler(run: JobRun):
        raise error

    async def on_failed(conn: Connection, job: JobRecord) -> None:
        async with conn.cursor() as cursor:
            await cursor.execute("SELECT state FROM memory.jobs WHERE job_id = %s", (job.job_id,))
            [row] = await cursor.fetchall()
        told.append((job.job_id, row["state"]))

    jobs.register("k", handler, on_failed=on_failed)
    job_id = await _enqueue(jobs_db, jobs)
    async with _working(jobs):
        assert (await _ended(jobs, job_id)).state == "failed"
    assert told == [(job_id, "failed")]
