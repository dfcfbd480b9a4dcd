"""The measurements, against a running stack whose model is scripted. Times in milliseconds."""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from nianlun.aio import AsyncClient
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from tests.support import fake_llm as llm
from tests.support.fake_llm import FakeLlm

_SIDE_BY_SIDE = ("load_memory", "retrieve")
QUESTION = "默认的融合方式是什么？后台任务的租约有多长？"


@dataclass(frozen=True)
class Overhead:
    """One chat taken apart: all of it, what stood in other services and the model, the rest."""

    total: float
    elsewhere: float

    @property
    def own(self) -> float:
        """The orchestrator's own share, the client's included."""
        return max(0.0, self.total - self.elsewhere)


def _streams(call: llm.Call) -> bool:
    return call.stream


def _streamed(fake: FakeLlm) -> list[llm.Call]:
    """The orchestrator's calls: memory's background calls do not stream."""
    return [call for call in fake.chats() if call.stream]


def _reset(fake: FakeLlm) -> None:
    """Forget the last script; extraction finds nothing and is not tried again."""
    fake.reset()
    fake.on(None, llm.as_json({"facts": [], "note": ""}))


def asked(message: str, collection: str, user: str) -> pb.ChatInput:
    """A question with memory and retrieval, without tools."""
    return pb.ChatInput(
        message=message,
        user_id=user,
        session_id=f"bench-{uuid.uuid4().hex[:8]}",
        scope=pb.Scope(collection_id=collection),
        use_tools=False,
    )


async def overhead(
    client: AsyncClient, fake: FakeLlm, collection: str, rounds: int
) -> list[Overhead]:
    """One chat after the other, with a model that answers at once."""
    _reset(fake)
    fake.on(_streams, llm.Reply(pieces=("好的。",)))
    found = []
    for _ in range(rounds):
        begun = time.perf_counter()
        response = await client.orchestrator.Chat(
            pb.ChatRequest(input=asked(QUESTION, collection, "bench"), request_id=uuid.uuid4().hex)
        )
        total = (time.perf_counter() - begun) * 1000
        steps = {step.step: step.ms for step in response.steps}
        gather = max(steps[name] for name in _SIDE_BY_SIDE)
        found.append(Overhead(total, gather + steps["reason"] + steps["save_memory"]))
    return found


async def first_token(
    client: AsyncClient, fake: FakeLlm, collection: str, rounds: int, delay_s: float = 0.1
) -> list[float]:
    """From the provider's first piece (sent `delay_s` after the call came in) to the caller."""
    _reset(fake)
    fake.on(_streams, llm.Reply(pieces=("一", "二", "三"), delay_s=delay_s))
    gaps = []
    for _ in range(rounds):
        stream = client.orchestrator.StreamChat(
            pb.StreamChatRequest(
                input=asked(QUESTION, collection, "bench"), request_id=uuid.uuid4().hex
            )
        )
        seen = 0.0
        async for message in stream:
            if not seen and message.event.WhichOneof("event") == "text_delta":
                seen = time.monotonic()
        gaps.append((seen - _streamed(fake)[-1].at - delay_s) * 1000)
    return gaps


async def streams(
    client: AsyncClient, fake: FakeLlm, count: int, pieces: int, pause_s: float
) -> list[float]:
    """The gaps between pieces over `count` streams at once."""
    _reset(fake)
    fake.on(_streams, llm.Reply(pieces=tuple("字" * pieces), piece_delay_s=pause_s))

    async def one(number: int) -> list[float]:
        stream = client.orchestrator.StreamChat(
            pb.StreamChatRequest(
                input=pb.ChatInput(message="写一段话。", use_memory=False, use_retrieval=False),
                request_id=uuid.uuid4().hex,
            )
        )
        times = [
            time.perf_counter()
            async for message in stream
            if message.event.WhichOneof("event") == "text_delta"
        ]
        if len(times) != pieces:
            raise RuntimeError(f"stream {number} brought {len(times)} of {pieces} pieces")
        return [(b - a) * 1000 for a, b in pairwise(times)]

    return [gap for gaps in await asyncio.gather(*map(one, range(count))) for gap in gaps]


async def tokens(
    client: AsyncClient, fake: FakeLlm, collection: str, questions: Sequence[str]
) -> list[pb.PromptTokens]:
    """Where the prompts' tokens go, beside what the whole documents would have cost."""
    found = []
    for question in questions:
        context = await client.orchestrator.BuildContext(
            pb.BuildContextRequest(input=asked(question, collection, "bench"))
        )
        found.append(context.tokens)
    return found


def p50(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]
