"""Short forms of the calls that memory tests make all the time."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as pb

_WAITING = (
    common_pb2.JOB_STATE_QUEUED,
    common_pb2.JOB_STATE_RUNNING,
    common_pb2.JOB_STATE_RETRYING,
)


def rid() -> str:
    """A fresh request_id."""
    return uuid.uuid4().hex


def stamp(moment: datetime) -> Timestamp:
    """A timestamp."""
    out = Timestamp()
    out.FromDatetime(moment)
    return out


def turn(user: str, session: str, *texts: str, **options: Any) -> pb.AppendTurnRequest:
    """Messages alternate between user and assistant."""
    roles = (pb.ROLE_USER, pb.ROLE_ASSISTANT)
    messages = [pb.Message(role=roles[i % 2], text=t) for i, t in enumerate(texts)]
    if "at" in options:
        options["event_time"] = stamp(options.pop("at"))
    return pb.AppendTurnRequest(
        request_id=options.pop("request_id", rid()),
        user_id=user,
        session_id=session,
        messages=messages,
        **options,
    )


class Memory:
    """MemoryService as one tenant sees it."""

    def __init__(self, stub: Any) -> None:
        self.stub = stub

    async def say(self, user: str, *texts: str, **options: Any) -> pb.AppendTurnResponse:
        """Append one turn; `session` defaults to s1."""
        session = options.pop("session", "s1")
        reply: pb.AppendTurnResponse = await self.stub.AppendTurn(
            turn(user, session, *texts, **options)
        )
        return reply

    async def load(self, user: str, query: str = "", **options: Any) -> pb.LoadMemoryResponse:
        """LoadMemory, from session s2 unless told."""
        request = pb.LoadMemoryRequest(
            user_id=user, session_id=options.pop("session", "s2"), query=query, **options
        )
        reply: pb.LoadMemoryResponse = await self.stub.LoadMemory(request)
        return reply

    async def recalled(self, user: str, query: str) -> str:
        """The rendered text of LoadMemory."""
        return (await self.load(user, query)).rendered

    async def facts(self, user: str, **options: Any) -> list[pb.Fact]:
        """ListFacts."""
        reply = await self.stub.ListFacts(pb.ListFactsRequest(user_id=user, **options))
        return list(reply.facts)

    async def history(self, user: str, attribute: str) -> list[pb.Fact]:
        """GetFactHistory."""
        request = pb.GetFactHistoryRequest(user_id=user, attribute=attribute)
        return list((await self.stub.GetFactHistory(request)).facts)

    async def episodes(self, user: str) -> list[pb.Episode]:
        """ListEpisodes."""
        return list((await self.stub.ListEpisodes(pb.ListEpisodesRequest(user_id=user))).episodes)

    async def recall(self, user: str, query: str, **options: Any) -> pb.SearchEpisodesResponse:
        """SearchEpisodes."""
        request = pb.SearchEpisodesRequest(user_id=user, query=query, **options)
        reply: pb.SearchEpisodesResponse = await self.stub.SearchEpisodes(request)
        return reply

    async def end(self, user: str, session: str = "s1") -> common_pb2.Job:
        """EndSession, and wait until its job has ended."""
        request = pb.EndSessionRequest(request_id=rid(), user_id=user, session_id=session)
        return await self.ended((await self.stub.EndSession(request)).job.job_id)

    async def ended(self, job_id: str, within_s: float = 20.0) -> common_pb2.Job:
        """The job once it has ended."""
        job = common_pb2.Job()
        for _ in range(int(within_s / 0.05)):
            job = (await self.stub.GetJob(pb.GetJobRequest(job_id=job_id))).job
            if job.HasField("end_time"):
                return job
            await asyncio.sleep(0.05)
        raise AssertionError(f"the job has not ended: {job}")

    async def settled(self, within_s: float = 20.0) -> None:
        """Wait until no job of the tenant waits or runs."""
        for _ in range(int(within_s / 0.05)):
            if not (await self.stub.ListJobs(pb.ListJobsRequest(states=_WAITING))).jobs:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("jobs are still waiting")

    async def refused(self, call: str, request: Any, code: grpc.StatusCode) -> grpc.aio.AioRpcError:
        """The call must fail with `code`."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(self.stub, call)(request)
        assert caught.value.code() == code, caught.value
        return caught.value


async def exported(memory: Memory, user: str) -> list[str]:
    """All lines of an export."""
    call = memory.stub.ExportUser(pb.ExportUserRequest(user_id=user))
    return [line async for message in call for line in message.lines]


async def imported(memory: Memory, user: str, lines: Sequence[str]) -> pb.ImportUserResponse:
    """Import these lines for a user."""

    async def stream() -> AsyncIterator[pb.ImportUserRequest]:
        yield pb.ImportUserRequest(header=pb.ImportHeader(request_id=rid(), user_id=user))
        for start in range(0, len(lines), 200):
            part = pb.ImportLines(lines=lines[start : start + 200])
            yield pb.ImportUserRequest(lines=part)

    reply: pb.ImportUserResponse = await memory.stub.ImportUser(stream())
    return reply
