"""Data of one tenant and user in every service, with a secret that nobody else may ever see."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import grpc

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as m
from nianlun.retriever.v1 import retriever_pb2 as r
from tests.support.requests import REQUESTS, Ids
from tests.support.stack import Client

ENDED = (
    common_pb2.JOB_STATE_SUCCEEDED,
    common_pb2.JOB_STATE_FAILED,
    common_pb2.JOB_STATE_CANCELLED,
)


async def wait_for_job(jobs: Any, job_id: str, within_s: float = 60.0) -> common_pb2.Job:
    """Poll a job of the memory or retriever service until it has ended."""
    request = m.GetJobRequest if "MemoryService" in type(jobs._stub).__name__ else r.GetJobRequest
    async with asyncio.timeout(within_s):
        while True:
            job: common_pb2.Job = (await jobs.GetJob(request(job_id=job_id))).job
            if job.state in ENDED:
                return job
            await asyncio.sleep(0.1)


async def plant(client: Client, user_id: str | None = None) -> Ids:
    """Write with every service and wait until the background work is done."""
    tag = secrets.token_hex(3)
    ids = Ids(
        marker="邮票",
        secret=f"S{tag.upper()}Q",
        user_id=user_id or f"u-{tag}",
        session_id=f"s-{tag}",
        collection_id=f"c-{tag}",
        document_id=f"d-{tag}",
        reading_document_id=f"r-{tag}",
    )
    found: dict[str, str] = {}

    async def call(name: str) -> Any:
        service, method = name.split(".")
        return await getattr(getattr(client, service), method)(REQUESTS[name](ids))

    await call("retriever.CreateCollection")
    job = (await call("retriever.UpsertDocuments")).job
    found["retriever_job_id"] = job.job_id
    found["turn_id"] = (await call("memory.AppendTurn")).turn_id
    found["fact_id"] = await _served(call("memory.PutFact"), "fact.fact_id")
    await _served(call("memory.RecordReading"), "reading.reading_id")
    session = (await call("memory.EndSession")).job
    found["memory_job_id"] = session.job_id
    await wait_for_job(client.retriever, job.job_id)
    await wait_for_job(client.memory, session.job_id)
    episodes = await client.memory.ListEpisodes(m.ListEpisodesRequest(user_id=ids.user_id))
    if episodes.episodes:
        found["episode_id"] = episodes.episodes[0].episode_id
    found["run_id"] = (await call("orchestrator.Chat")).run_id
    known = {name: value for name, value in found.items() if value}
    return Ids(**{**ids.__dict__, **known})


async def _served(call: Any, path: str) -> str:
    """The value at a path of the response, "" where this version does not serve the call."""
    try:
        value = await call
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return ""
        raise
    for name in path.split("."):
        value = getattr(value, name)
    return str(value)
