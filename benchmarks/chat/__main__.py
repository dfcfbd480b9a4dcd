"""`python -m benchmarks.chat`: the figures of a chat over real processes. QUICK=1 is shorter."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.chat import measure
from benchmarks.report import QUICK, Report
from nianlun import AsyncClient
from nianlun.operations import knowledge
from services.local.home import Home
from services.local.stack import REPOSITORY, launch
from tests.support.fake_llm import FakeLlm

COLLECTION = "bench"
STREAMS = 50
QUESTIONS = (
    "默认的融合方式是什么？",
    "How is a background job leased?",
    "行级安全是怎么保证租户隔离的？",
    "What does a position token promise?",
)


async def _ingest(client: AsyncClient) -> int:
    files = sorted((REPOSITORY / "docs").glob("*.md")) + sorted(REPOSITORY.glob("README*.md"))
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    await client.create_collection(COLLECTION)
    documents = [knowledge.document(name, text) for name, text in texts.items()]
    await client.wait_job(await client.upsert_documents(COLLECTION, documents), timeout_s=300)
    return sum(map(len, texts.values()))


async def _measure(targets: dict[str, str], key: str, fake: FakeLlm) -> dict[str, Any]:
    rounds = 30 if QUICK else 200
    async with AsyncClient(targets, key=key, timeout_s=120) as client:
        chars = await _ingest(client)
        await measure.overhead(client, fake, COLLECTION, 5)  # warm
        chats = await measure.overhead(client, fake, COLLECTION, rounds)
        gaps = await measure.first_token(client, fake, COLLECTION, max(10, rounds // 5))
        pause_s = 0.1
        stalls = await measure.streams(client, fake, STREAMS, 40 if QUICK else 100, pause_s)
        spent = await measure.tokens(client, fake, COLLECTION, QUESTIONS)
    # Every question has the same scope; on a busy machine its size may be unknown for some.
    whole = max(one.whole_documents for one in spent) * len(spent)
    used = sum(one.total for one in spent)
    return {
        "corpus_chars": chars,
        "chat_total_p50_ms": measure.p50([one.total for one in chats]),
        "chat_total_p99_ms": measure.p99([one.total for one in chats]),
        "overhead_p50_ms": measure.p50([one.own for one in chats]),
        "overhead_p99_ms": measure.p99([one.own for one in chats]),
        "first_token_p50_ms": measure.p50(gaps),
        "stream_gap_p50_ms": measure.p50(stalls),
        "stream_gap_p99_ms": measure.p99(stalls),
        "stream_gap_max_ms": max(stalls),
        "prompt_tokens": used,
        "whole_document_tokens": whole,
        "tokens_saved_ratio": whole / max(1, used),
    }


def _write(found: dict[str, Any]) -> None:
    report = Report("chat", "benchmarks.chat")
    report.figure("overhead_p50_ms", found["overhead_p50_ms"], 25.0, higher=False)
    report.figure("first_token_p50_ms", found["first_token_p50_ms"], 5.0, higher=False)
    report.figure("stream_gap_max_ms", found["stream_gap_max_ms"], 1_000.0, higher=False)
    report.figure("tokens_saved_ratio", found["tokens_saved_ratio"], 14.0)
    report.details |= found
    report.charts += _charts(found)
    report.text += [f"- {name}: {value:.5g}" for name, value in found.items()]
    report.write()


def _charts(found: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    return [
        (
            "One chat with memory and retrieval, ms",
            {
                "whole, p50": found["chat_total_p50_ms"],
                "whole, p99": found["chat_total_p99_ms"],
                "orchestrator's own, p50": found["overhead_p50_ms"],
                "orchestrator's own, p99": found["overhead_p99_ms"],
                "first token passed on, p50": found["first_token_p50_ms"],
            },
        ),
        (
            f"Gap between pieces of {STREAMS} streams, one piece each 100 ms, in ms",
            {
                "p50": found["stream_gap_p50_ms"],
                "p99": found["stream_gap_p99_ms"],
                "largest": found["stream_gap_max_ms"],
            },
        ),
        (
            f"Prompt tokens of {len(QUESTIONS)} questions",
            {
                "memory and retrieval": found["prompt_tokens"],
                "whole documents": found["whole_document_tokens"],
            },
        ),
    ]


def main() -> int:
    """Start a stack with a scripted model, measure, write results; 0 also when one is short."""
    fake = FakeLlm()
    fake.start()
    os.environ.update(fake.environment)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="nl-") as folder,
            launch(Home(Path(folder)), report=print) as stack,
        ):
            found = asyncio.run(_measure(stack.info.targets, stack.info.key, fake))
    finally:
        fake.stop()
    _write(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
