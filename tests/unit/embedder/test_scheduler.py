"""The scheduling core: order and length kept, nothing lost or doubled, budget kept, no
starvation.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from services.embedder.scheduler.core import Scheduler
from services.embedder.scheduler.types import Item, Limits, Priority, State

LIMITS = Limits(batch_tokens=256, batch_items=8, queue_tokens=10_000, fill_tokens=32)


def item(
    name: int,
    tokens: int = 10,
    priority: Priority = Priority.DOCUMENT,
    *,
    lane: str = "a",
    arrival: float = 0.0,
    deadline: float | None = None,
) -> Item[int]:
    return Item(lane, tokens, priority, arrival, name, deadline)


def names(items: tuple[Item[int], ...]) -> list[int]:
    return [one.payload for one in items]


ITEMS = st.lists(
    st.tuples(
        st.integers(1, 400),
        st.sampled_from(list(Priority)),
        st.sampled_from(["a", "b"]),
        st.one_of(st.none(), st.floats(0.0, 20.0)),
    ),
    min_size=1,
    max_size=80,
)


def run_all(scheduler: Scheduler[int], start: float = 0.0, step: float = 0.1) -> list[list[int]]:
    """Every batch until nothing waits; each takes `step` seconds."""
    batches, now = [], start
    while (batch := scheduler.next_batch(now).batch) is not None:
        batches.append(names(batch.items))
        scheduler.done(batch, step)
        now += step
    return batches


@given(ITEMS)
def test_every_item_is_served_once_or_dropped_at_its_deadline(
    specs: list[tuple[int, Priority, str, float | None]],
) -> None:
    scheduler: Scheduler[int] = Scheduler(LIMITS)
    items = [
        item(at, tokens, priority, lane=lane, deadline=deadline)
        for at, (tokens, priority, lane, deadline) in enumerate(specs)
    ]
    scheduler.add(items)
    served: list[int] = []
    expired: list[int] = []
    now = 0.0
    while True:
        pop = scheduler.next_batch(now)
        for one in pop.expired:
            assert one.deadline is not None
            assert one.deadline <= now
        expired += names(pop.expired)
        if pop.batch is None:
            break
        assert all(one.deadline is None or one.deadline > now for one in pop.batch.items)
        served += names(pop.batch.items)
        scheduler.done(pop.batch, 0.5)
        now += 0.5
    assert sorted(served + expired) == list(range(len(items)))
    assert scheduler.queued_tokens() == 0
    assert {one.state for one in items} <= {State.DONE, State.EXPIRED}


@given(ITEMS)
def test_budget_lane_and_priority_hold_for_every_batch(
    specs: list[tuple[int, Priority, str, float | None]],
) -> None:
    scheduler: Scheduler[int] = Scheduler(LIMITS)
    scheduler.add(item(at, t, p, lane=lane) for at, (t, p, lane, _) in enumerate(specs))
    while (batch := scheduler.next_batch(0.0).batch) is not None:
        assert {one.lane for one in batch.items} == {batch.lane}
        assert len({one.priority for one in batch.items}) == 1
        assert len(batch.items) <= LIMITS.batch_items
        if len(batch.items) > 1:
            assert batch.padded_tokens <= LIMITS.batch_tokens
            waste = batch.padded_tokens - batch.tokens
            assert (
                batch.padded_tokens <= LIMITS.fill_tokens
                or waste <= LIMITS.max_waste * batch.padded_tokens
            )
        # Within a batch the order of arrival is kept.
        assert names(batch.items) == sorted(names(batch.items))
        scheduler.done(batch, 0.1)


@given(ITEMS, st.sets(st.integers(0, 79)))
def test_a_poison_text_fails_alone(
    specs: list[tuple[int, Priority, str, float | None]], poison: set[int]
) -> None:
    scheduler: Scheduler[int] = Scheduler(LIMITS)
    scheduler.add(item(at, t, p, lane=lane) for at, (t, p, lane, _) in enumerate(specs))
    good: list[int] = []
    bad: list[int] = []
    while (batch := scheduler.next_batch(0.0).batch) is not None:
        if poison & set(names(batch.items)):
            bad += names(scheduler.failed(batch))
        else:
            good += names(batch.items)
            scheduler.done(batch, 0.1)
    assert set(bad) == poison & set(range(len(specs)))
    assert sorted(good + bad) == list(range(len(specs)))


@given(ITEMS, st.sets(st.integers(0, 79)))
def test_cancelled_items_never_run(
    specs: list[tuple[int, Priority, str, float | None]], cancelled: set[int]
) -> None:
    scheduler: Scheduler[int] = Scheduler(LIMITS)
    items = [item(at, t, p, lane=lane) for at, (t, p, lane, _) in enumerate(specs)]
    scheduler.add(items)
    for at in cancelled & set(range(len(items))):
        assert scheduler.cancel(items[at])
        assert not scheduler.cancel(items[at])
    served = [name for batch in run_all(scheduler) for name in batch]
    assert sorted(served) == sorted(set(range(len(items))) - cancelled)


@given(st.integers(1, 40), st.integers(1, 12))
def test_documents_are_not_starved_by_queries(arriving: int, tokens: int) -> None:
    """However many queries arrive, an old document has its turn after a burst of them."""
    scheduler: Scheduler[int] = Scheduler(LIMITS)
    document = item(-1, tokens)
    scheduler.add([document])
    now, passed = 0.0, 0
    while document.state is not State.DONE:
        scheduler.add([item(n, 10, Priority.QUERY, arrival=now) for n in range(arriving)])
        batch = scheduler.next_batch(now).batch
        assert batch is not None
        scheduler.done(batch, 1.0)
        now += 1.0
        passed += 1
        assert passed <= LIMITS.query_burst + 1


@given(st.integers(1, 60))
def test_queries_pass_documents(count: int) -> None:
    """A query waits for at most one batch of documents, however many documents are old."""
    scheduler: Scheduler[int] = Scheduler(LIMITS)
    scheduler.add(item(n, 20) for n in range(count))
    now = 100.0
    batch = scheduler.next_batch(now).batch
    assert batch is not None
    scheduler.add([item(-1, 5, Priority.QUERY, arrival=now)])
    scheduler.done(batch, 1.0)
    following = scheduler.next_batch(now + 1.0).batch
    assert following is not None
    assert names(following.items) == [-1]


@settings(max_examples=50)
@given(st.lists(st.integers(1, 512), min_size=50, max_size=200))
def test_mixed_lengths_waste_little(lengths: list[int]) -> None:
    limits = Limits(batch_tokens=4_096, fill_tokens=128)
    scheduler: Scheduler[int] = Scheduler(limits)
    scheduler.add(item(at, tokens) for at, tokens in enumerate(lengths))
    run_all(scheduler)
    counters = scheduler.counters
    padded = counters.padded_tokens
    # Batches below the fill level may waste more; they are few and small.
    small = limits.fill_tokens * counters.batches
    assert padded - counters.tokens <= limits.max_waste * padded + small


def test_the_oldest_item_leads_and_neighbours_in_length_follow() -> None:
    scheduler: Scheduler[int] = Scheduler(LIMITS)
    scheduler.add(item(at, tokens) for at, tokens in enumerate([30, 200, 31, 5, 29, 190]))
    assert run_all(scheduler) == [[0, 2, 4], [1], [3], [5]]


def test_admission_by_tokens_and_by_deadline() -> None:
    scheduler: Scheduler[int] = Scheduler(LIMITS)
    assert scheduler.admit("a", 50_000, Priority.QUERY, 1.0, 0.0) is None, "an empty queue"
    scheduler.add([item(0, 200)])
    first = scheduler.next_batch(0.0).batch
    assert first is not None
    scheduler.done(first, 2.0)  # 100 tokens a second
    scheduler.add(item(n, 200) for n in range(10))
    assert scheduler.admit("a", 9_000, Priority.DOCUMENT, None, 0.0) is not None, "too many"
    late = scheduler.admit("a", 100, Priority.DOCUMENT, 5.0, 0.0)
    assert late is not None
    assert 15.0 < late < 17.0, "2,100 tokens take 21 s, 5 s are left"
    assert scheduler.admit("a", 100, Priority.DOCUMENT, 30.0, 0.0) is None
    assert scheduler.admit("a", 100, Priority.QUERY, 5.0, 0.0) is None, "queries pass documents"


def test_out_of_memory_halves_the_budget_which_then_recovers() -> None:
    scheduler: Scheduler[int] = Scheduler(LIMITS)
    scheduler.add(item(at, 32) for at in range(8))
    batch = scheduler.next_batch(0.0).batch
    assert batch is not None
    assert len(batch.items) == 8
    assert scheduler.failed(batch, out_of_memory=True) == ()
    assert [len(names) for names in run_all(scheduler)] == [4, 4]
    scheduler.add(item(at, 32) for at in range(8))
    assert [len(names) for names in run_all(scheduler)] == [4, 4], "the budget stays halved"
    for _ in range(100):
        scheduler.add([item(0, 32)])
        run_all(scheduler)
    scheduler.add(item(at, 32) for at in range(8))
    assert [len(names) for names in run_all(scheduler)] == [8]


def test_bad_results_run_again_alone() -> None:
    scheduler: Scheduler[int] = Scheduler(LIMITS)
    scheduler.add(item(at) for at in range(4))
    batch = scheduler.next_batch(0.0).batch
    assert batch is not None
    assert scheduler.partly(batch, batch.items[1:3], 0.1) == ()
    alone = []
    while (again := scheduler.next_batch(0.0).batch) is not None:
        alone.append(names(scheduler.partly(again, again.items, 0.1)))
    assert alone == [[1], [2]]


def test_draining_empties_the_queue_in_order() -> None:
    scheduler: Scheduler[int] = Scheduler(LIMITS)
    scheduler.add(item(at, 10 + at) for at in range(5))
    assert names(scheduler.drain()) == [0, 1, 2, 3, 4]
    assert scheduler.next_batch(0.0).batch is None
