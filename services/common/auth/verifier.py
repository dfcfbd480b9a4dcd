"""Verification of keys: one database function, cached, good for a while without the database."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from services.common import errors, logs
from services.common.auth import keys
from services.common.db import Database

_CACHE_SIZE = 10_000
_UNKNOWN_S = 5.0
"""Unknown keys are remembered for a shorter time: they may be about to be created."""
_OUTAGE_RETRY_S = 2.0
"""While a remembered answer serves during an outage, the database is asked at most this often."""
_PATIENCE_S = 1.0
_OUTAGE = frozenset({"DATABASE_UNAVAILABLE", "DEADLINE_EXCEEDED"})


@dataclass(frozen=True)
class VerifiedKey:
    """What the database says of a good key."""

    tenant_id: str
    key_id: str
    scopes: frozenset[str]
    expire_time: datetime | None

    def expired(self, now: datetime) -> bool:
        """True once the key's expiry has passed."""
        return self.expire_time is not None and self.expire_time <= now


@dataclass(frozen=True)
class _Cached:
    key: VerifiedKey | None
    at: float
    retry_at: float = 0.0


def _now() -> datetime:
    return datetime.now(UTC)


Lookup = Callable[[bytes], Awaitable[VerifiedKey | None]]


def database_lookup(db: Database) -> Lookup:
    """A lookup by ``auth.verify``, the only thing of schema auth a service may use."""

    async def look_up(digest: bytes) -> VerifiedKey | None:
        async with db.plain() as conn:
            cursor = await conn.execute(
                "SELECT tenant_id, key_id, scopes, expire_time FROM auth.verify(%s)", (digest,)
            )
            row = await cursor.fetchone()
        if row is None:
            return None
        return VerifiedKey(
            tenant_id=row["tenant_id"],
            key_id=str(row["key_id"]),
            scopes=frozenset(row["scopes"]),
            expire_time=row["expire_time"],
        )

    return look_up


class KeyVerifier:
    """Checks keys against ``auth.verify``.

    An answer is used for ``cache_s`` seconds, so a revocation takes at most that long. While the
    database is unreachable, a key that was good keeps working until ``outage_s`` seconds after it
    was last seen good.
    """

    def __init__(
        self,
        lookup: Lookup | Database,
        *,
        cache_s: float = 30.0,
        outage_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = _now,
    ) -> None:
        self._lookup = database_lookup(lookup) if isinstance(lookup, Database) else lookup
        self._cache_s = cache_s
        self._outage_s = outage_s
        self._clock = clock
        self._wall = wall
        self._cache: OrderedDict[bytes, _Cached] = OrderedDict()
        self._asking: dict[bytes, asyncio.Future[VerifiedKey | None]] = {}
        self._log = logs.get(__name__)

    async def verify(self, key: str) -> VerifiedKey:
        """The key's tenant and scopes; UNAUTHENTICATED for any key that is not good, whatever the
        cause, DATABASE_UNAVAILABLE when it cannot be known."""
        if not keys.well_formed(key):
            raise errors.unauthenticated("malformed key")
        digest = keys.digest(key)
        cached = self._cache.get(digest)
        if cached is not None and self._fresh(cached):
            self._cache.move_to_end(digest)
            return self._good(cached.key)
        # Who is known need not wait long to be confirmed.
        patience = _PATIENCE_S if cached is not None and cached.key is not None else None
        try:
            async with asyncio.timeout(patience):
                found = await self._ask(digest)
        except TimeoutError:
            found = self._remembered(digest, errors.database_unavailable("slow verification"))
        except errors.DomainError as error:
            if error.reason not in _OUTAGE:
                raise
            found = self._remembered(digest, error)
        return self._good(found)

    def _fresh(self, cached: _Cached) -> bool:
        now = self._clock()
        if now < cached.retry_at:
            return now - cached.at < self._outage_s
        lifetime = self._cache_s if cached.key else min(_UNKNOWN_S, self._cache_s)
        return now - cached.at < lifetime

    async def _ask(self, digest: bytes) -> VerifiedKey | None:
        """Ask the database, once for all callers that wait for the same key."""
        asking = self._asking.get(digest)
        if asking is None:
            asking = asyncio.ensure_future(self._look_up(digest))
            self._asking[digest] = asking
            asking.add_done_callback(lambda done: self._answered(digest, done))
        # Shielded: the caller that asked first may be cancelled while others still wait.
        return await asyncio.shield(asking)

    def _answered(self, digest: bytes, done: asyncio.Future[VerifiedKey | None]) -> None:
        self._asking.pop(digest, None)
        if not done.cancelled():
            done.exception()  # seen: all who waited may have left

    async def _look_up(self, digest: bytes) -> VerifiedKey | None:
        found = await self._lookup(digest)
        self._cache[digest] = _Cached(found, self._clock())
        self._cache.move_to_end(digest)
        while len(self._cache) > _CACHE_SIZE:
            self._cache.popitem(last=False)
        return found

    def _remembered(self, digest: bytes, outage: errors.DomainError) -> VerifiedKey:
        cached, now = self._cache.get(digest), self._clock()
        if cached is None or cached.key is None or now - cached.at >= self._outage_s:
            raise outage
        self._cache[digest] = _Cached(cached.key, cached.at, now + _OUTAGE_RETRY_S)
        self._log.warning("auth_from_memory", seconds_since_verified=round(now - cached.at, 1))
        return cached.key

    def _good(self, key: VerifiedKey | None) -> VerifiedKey:
        if key is None or key.expired(self._wall()):
            raise errors.unauthenticated("unknown, revoked or expired key")
        return key
