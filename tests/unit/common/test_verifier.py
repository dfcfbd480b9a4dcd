"""Verification of keys: caching, revocation, outage, expiry."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from services.common import errors
from services.common.auth import KeyVerifier, VerifiedKey, keys


class _Directory:
    """Stands in for the database: counts questions, can be away."""

    def __init__(self) -> None:
        self.known: dict[bytes, VerifiedKey] = {}
        self.asked = 0
        self.away = False
        self.now = 1000.0
        self.today = datetime(2024, 2, 29, 12, tzinfo=UTC)

    def add(self, expire_time: datetime | None = None) -> str:
        key = keys.generate()
        self.known[keys.digest(key)] = VerifiedKey("t", "k", frozenset({"read"}), expire_time)
        return key

    async def look_up(self, digest: bytes) -> VerifiedKey | None:
        self.asked += 1
        await asyncio.sleep(0)
        if self.away:
            raise errors.database_unavailable()
        return self.known.get(digest)

    def verifier(self) -> KeyVerifier:
        return KeyVerifier(
            self.look_up,
            cache_s=30,
            outage_s=300,
            clock=lambda: self.now,
            wall=lambda: self.today,
        )


@pytest.fixture
def directory() -> _Directory:
    return _Directory()


async def _unauthenticated(verifier: KeyVerifier, key: str) -> None:
    with pytest.raises(errors.DomainError) as caught:
        await verifier.verify(key)
    assert caught.value.reason == "UNAUTHENTICATED"


async def test_a_good_key_is_asked_for_once_in_the_cache_time(directory: _Directory):
    key, verifier = directory.add(), directory.verifier()
    for _ in range(3):
        assert (await verifier.verify(key)).tenant_id == "t"
    assert directory.asked == 1
    directory.now += 31
    await verifier.verify(key)
    assert directory.asked == 2


async def test_parallel_callers_ask_once(directory: _Directory):
    key, verifier = directory.add(), directory.verifier()
    await asyncio.gather(*(verifier.verify(key) for _ in range(20)))
    assert directory.asked == 1


async def test_a_revocation_takes_at_most_the_cache_time(directory: _Directory):
    key, verifier = directory.add(), directory.verifier()
    await verifier.verify(key)
    directory.known.clear()
    directory.now += 29
    await verifier.verify(key)
    directory.now += 2
    await _unauthenticated(verifier, key)


async def test_malformed_keys_never_reach_the_database(directory: _Directory):
    verifier = directory.verifier()
    for key in ("", "nl_", "nl_" + "x" * 42, "nl_" + "é" * 43, "x" * 46, "nl_" + "a" * 43 + "\n"):
        await _unauthenticated(verifier, key)
    assert directory.asked == 0


async def test_a_cached_key_expires_on_time(directory: _Directory):
    key = directory.add(directory.today + timedelta(seconds=5))
    verifier = directory.verifier()
    directory.today += timedelta(seconds=4.9)
    await verifier.verify(key)
    directory.today += timedelta(seconds=0.1)
    await _unauthenticated(verifier, key)
    assert directory.asked == 1


async def test_a_known_key_survives_an_outage_for_five_minutes(directory: _Directory):
    key, stranger, verifier = directory.add(), directory.add(), directory.verifier()
    await verifier.verify(key)
    directory.away = True
    directory.now += 60
    for _ in range(5):
        assert (await verifier.verify(key)).tenant_id == "t"
    assert directory.asked == 2, "during an outage the database is not asked for every call"
    with pytest.raises(errors.DomainError, match="DATABASE_UNAVAILABLE"):
        await verifier.verify(stranger)
    directory.now += 245
    with pytest.raises(errors.DomainError, match="DATABASE_UNAVAILABLE"):
        await verifier.verify(key)
    directory.away = False
    await verifier.verify(key)


async def test_a_key_made_right_after_a_failed_try_works_soon(directory: _Directory):
    key, verifier = keys.generate(), directory.verifier()
    await _unauthenticated(verifier, key)
    directory.known[keys.digest(key)] = VerifiedKey("t", "k", frozenset({"read"}), None)
    directory.now += 6
    await verifier.verify(key)


def test_keys_have_the_published_form():
    key = keys.generate()
    assert keys.well_formed(key)
    assert len(key) == 46
    assert len(keys.digest(key)) == 32
