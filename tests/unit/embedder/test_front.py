"""Front and worker together: faults stay with the text that caused them, work is shared."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from services.common.errors import DomainError
from services.embedder.front import Ticket
from services.embedder.model import InputType, Vectors
from services.embedder.worker import Failure
from tests.unit.embedder.conftest import Bench, vector


def reasons(ticket: Ticket) -> list[str]:
    """ "ok" or the reason of each slot."""
    return [
        one.outcome.reason if isinstance(one.outcome, Failure) else "ok" for one in ticket.results()
    ]


def waiting(bench: Bench, items: int) -> bool:
    """Whether so many texts are in the one batch that runs or wait behind it."""
    batches = bench.model.batches
    return len(batches) == 1 and len(batches[0]) + bench.worker.queued()[1] == items


async def until(condition: object, seconds: float = 30.0) -> None:
    """Wait until the callable is true."""
    assert callable(condition)
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("did not happen")


async def test_results_come_in_order_and_equal_those_of_each_text_alone(bench: Bench) -> None:
    texts = [f"text {n} " + "x" * (n * 7 % 90) for n in range(200)]
    ticket = await bench.embed(*texts)
    for text, one in zip(texts, ticket.results(), strict=True):
        assert isinstance(one.outcome, Vectors)
        np.testing.assert_array_equal(one.outcome.dense, vector(text))
        assert one.tokens == len(text)


async def test_e3_one_poison_text_among_a_thousand_fails_alone(bench: Bench) -> None:
    texts = [f"text {n}" for n in range(1_000)]
    texts[617] = "poison"
    ticket = await bench.embed(*texts)
    found = reasons(ticket)
    assert found[617] == "MODEL_FAILED"
    assert found.count("ok") == 999
    assert bench.worker.unready(60) is None, "a known text still works: the model is well"


@pytest.mark.parametrize("bad", ["nan", "zero"])
async def test_a_useless_vector_is_an_error_of_its_text(bench: Bench, bad: str) -> None:
    assert reasons(await bench.embed("a", bad, "b")) == ["ok", "MODEL_FAILED", "ok"]


async def test_a_text_that_kills_the_thread_fails_and_the_thread_is_replaced(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths: list[object] = []
    monkeypatch.setattr(threading, "excepthook", deaths.append)
    assert reasons(await bench.embed("a", "die", "b", "c")) == ["ok", "MODEL_FAILED", "ok", "ok"]
    assert deaths
    assert reasons(await bench.embed("after")) == ["ok"]
    assert bench.worker.unready(60) is None


async def test_out_of_memory_makes_batches_smaller_and_everything_is_served(bench: Bench) -> None:
    bench.model.room = 100
    assert set(reasons(await bench.embed(*[f"text {n:04d}" for n in range(100)]))) == {"ok"}


async def test_a_broken_model_is_not_ready_until_a_probe_succeeds(bench: Bench) -> None:
    bench.model.broken = True
    assert reasons(await bench.embed("a")) == ["MODEL_FAILED"]
    await until(lambda: bench.worker.unready(60))
    bench.model.broken = False
    await until(lambda: bench.worker.unready(60) is None)


async def test_an_unreachable_model_is_asked_once_for_a_batch(bench: Bench) -> None:
    bench.model.unreachable = True
    assert set(reasons(await bench.embed(*"abcdefgh"))) == {"MODEL_UNAVAILABLE"}
    assert len([batch for batch in bench.model.batches if batch != ["readiness"]]) == 1
    assert bench.worker.unready(60) is not None


async def test_a_stuck_forward_pass_shows(bench: Bench) -> None:
    bench.model.gate.clear()
    waiting = asyncio.create_task(bench.embed("a"))
    await until(lambda: bench.model.batches)
    await asyncio.sleep(0.02)
    assert "stuck" in (bench.worker.unready(0.01) or "")
    bench.model.gate.set()
    await waiting


async def test_identical_texts_are_computed_once_and_then_come_from_the_cache(
    bench: Bench,
) -> None:
    bench.model.gate.clear()
    calls = [asyncio.create_task(bench.embed("same", "same", f"own {n}")) for n in range(10)]
    await until(lambda: waiting(bench, 11))
    bench.model.gate.set()
    tickets = await asyncio.gather(*calls)
    assert sum(batch.count("same") for batch in bench.model.batches) == 1
    assert all(set(reasons(ticket)) == {"ok"} for ticket in tickets)
    again = await bench.embed("same")
    assert again.results()[0].cached
    other = await bench.embed("same", input_type=InputType.QUERY)
    assert not other.results()[0].cached, "a query is not a document"


async def test_cancelled_calls_are_dropped_unless_another_waits_for_the_same(
    bench: Bench,
) -> None:
    bench.model.gate.clear()
    running = asyncio.create_task(bench.embed("running"))
    await until(lambda: bench.model.batches)
    left = asyncio.create_task(bench.embed("left", "shared"))
    await until(lambda: waiting(bench, 1 + 2))
    stays = asyncio.create_task(bench.embed("shared", "own"))
    await until(lambda: waiting(bench, 1 + 3))
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    bench.model.gate.set()
    await asyncio.gather(running, stays)
    texts = [text for batch in bench.model.batches for text in batch]
    assert "left" not in texts
    assert "shared" in texts
    assert bench.worker.queued() == (0, 0)


async def test_a_deadline_that_passes_drops_what_waits(bench: Bench) -> None:
    bench.model.gate.clear()
    running = asyncio.create_task(bench.embed("running"))
    await until(lambda: bench.model.batches)
    with pytest.raises(DomainError) as caught:
        await bench.embed("late", within=0.05)
    assert caught.value.reason == "DEADLINE_EXCEEDED"
    some = await bench.embed("later", within=0.05, partial=True)
    assert some.slots == [None]
    bench.model.gate.set()
    await running
    assert ["late"] not in bench.model.batches


async def test_a_full_queue_refuses_with_a_time_to_come_back(bench: Bench) -> None:
    bench.model.gate.clear()
    first = asyncio.create_task(bench.embed("x" * 500))
    await until(lambda: bench.model.batches)
    second = asyncio.create_task(bench.embed(*[f"{n:03d}" + "y" * 497 for n in range(39)]))
    await until(lambda: waiting(bench, 1 + 39))
    with pytest.raises(DomainError) as caught:
        await bench.embed(*[f"{n:03d}" + "z" * 497 for n in range(5)])
    assert caught.value.reason == "OVERLOADED"
    assert (caught.value.retry_after_s or 0) > 0
    bench.model.gate.set()
    assert set(reasons(await first)) | set(reasons(await second)) == {"ok"}


async def test_too_long_a_text_is_cut_or_refused(bench: Bench) -> None:
    cut = await bench.embed("x" * 200_000, max_tokens=100)
    assert (cut.results()[0].tokens, cut.results()[0].truncated) == (100, True)
    refused = await bench.embed("x" * 200_000, "short", max_tokens=100, truncate=False)
    assert reasons(refused) == ["TEXT_TOO_LONG", "ok"]


async def test_queries_do_not_wait_for_all_documents(bench: Bench) -> None:
    bench.model.gate.clear()
    documents = asyncio.create_task(bench.embed(*[f"text {n}" for n in range(640)]))
    await until(lambda: waiting(bench, 640))
    query = asyncio.create_task(bench.embed("query", input_type=InputType.QUERY))
    await until(lambda: waiting(bench, 641))
    bench.model.gate.set()
    assert reasons(await query) == ["ok"]
    await documents
    (place,) = [n for n, batch in enumerate(bench.model.batches) if "query" in batch]
    assert place <= 2
    assert len(bench.model.batches) >= 10


async def test_a_stopped_worker_answers_what_waits(bench: Bench) -> None:
    bench.model.gate.clear()
    running = asyncio.create_task(bench.embed("running"))
    await until(lambda: bench.model.batches)
    late = asyncio.create_task(bench.embed("late"))
    await until(lambda: waiting(bench, 1 + 1))
    stopping = asyncio.create_task(bench.worker.stop())
    # Before it lets the running pass end, the worker has given back what waits.
    assert reasons(await late) == ["MODEL_UNAVAILABLE"]
    bench.model.gate.set()
    await stopping
    assert reasons(await running) == ["ok"]
