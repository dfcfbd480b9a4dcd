"""`python -m benchmarks.chat`: the figures of a chat over real processes. QUICK=1 is shorter."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.chat import measure
from benchmarks.embed.report import plot
from benchmarks.memory.report import RESULTS, machine, versions
from nianlun import AsyncClient
from nianlun.operations import knowledge
from services.local.home import Home
from services.local.stack import REPOSITORY, launch
from tests.support.fake_llm import FakeLlm

QUICK = os.environ.get("QUICK") == "1"
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


def _figures(found: dict[str, Any]) -> list[dict[str, Any]]:
    wanted = (
        ("overhead_p50_ms", 25.0, False),
        ("first_token_p50_ms", 5.0, False),
        ("stream_gap_max_ms", 1_000.0, False),
        ("tokens_saved_ratio", 14.0, True),
    )
    return [
        {
            "name": name,
            "value": found[name],
            "limit": limit,
            "higher_is_better": higher,
            "ok": found[name] >= limit if higher else found[name] <= limit,
        }
        for name, limit, higher in wanted
    ]


def _write(found: dict[str, Any], figures: list[dict[str, Any]]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    body = {
        "name": "chat",
        "command": "python -m benchmarks.chat",
        "quick": QUICK,
        "machine": machine(),
        "versions": versions(),
        "figures": figures,
        "details": found,
    }
    text = json.dumps(body, ensure_ascii=False, indent=1, default=str)
    (RESULTS / "chat.json").write_text(text + "\n", encoding="utf-8")
    (RESULTS / "chat.svg").write_text(plot(_charts(found)), encoding="utf-8")
    lines = ["# chat", "", "| figure | value | limit | |", "|---|---|---|---|"]
    lines += [
        f"| {one['name']} | {one['value']:.4g} | {one['limit']:g} | {_mark(one)} |"
        for one in figures
    ]
    lines += ["", "![bars](chat.svg)", ""]
    lines += [*(f"- {name}: {value:.5g}" for name, value in found.items())]
    lines += ["", f"Machine: {body['machine']}", "", f"Versions: {body['versions']}", ""]
    (RESULTS / "chat.md").write_text("\n".join(lines), encoding="utf-8")


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


def _mark(figure: dict[str, Any]) -> str:
    return "ok" if figure["ok"] else "short"


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
    figures = _figures(found)
    _write(found, figures)
    for one in figures:
        print(f"figure {one['name']} {one['value']:.4g} {one['limit']:g} {_mark(one)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
