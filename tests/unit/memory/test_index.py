"""The cache of users' search indexes: nothing erased stays in memory."""

from __future__ import annotations

from services.memory.index import IndexCache, UserIndex, of_episodes


def _index(version: int) -> UserIndex:
    return of_episodes((version,), "m", [], {})


def test_an_index_read_before_an_erase_is_not_kept_after_it() -> None:
    cache = IndexCache(10, 10)
    cache.put("t", "u", "episode", _index(4))
    cache.drop("t", "u", 6)
    assert len(cache) == 0
    # A reader that began before the erase was committed comes late.
    cache.put("t", "u", "episode", _index(4))
    assert len(cache) == 0
    cache.put("t", "other", "episode", _index(4))
    cache.put("t", "u", "episode", _index(7))
    assert cache.get("t", "u", "episode", (7,), "m") is not None
    assert len(cache) == 2


def test_an_unused_index_leaves_memory_in_time() -> None:
    now = 0.0
    cache = IndexCache(10, 10, max_idle_s=60.0, clock=lambda: now)
    cache.put("t", "kept", "episode", _index(1))
    cache.put("t", "left", "episode", _index(1))
    now = 50.0
    assert cache.get("t", "kept", "episode", (1,), "") is not None
    now = 70.0
    cache.sweep()
    assert cache.get("t", "left", "episode", (1,), "") is None
    assert len(cache) == 1


def test_an_older_version_is_never_used_and_gives_way() -> None:
    cache = IndexCache(10, 10)
    cache.put("t", "u", "episode", _index(1))
    assert cache.get("t", "u", "episode", (2,), "m") is None
    cache.put("t", "u", "episode", _index(2))
    assert len(cache) == 1
