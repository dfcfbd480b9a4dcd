"""Which turns anything derived may tell of: what was deleted must not come back by another way."""

from __future__ import annotations

from collections.abc import Sequence

from services.common.db import Connection
from services.memory.domain import Turn
from services.memory.profile import tombstone_hash, user_hash
from services.memory.store import facts as fact_store


async def tellable(
    conn: Connection, tenant_id: str, user_id: str, turns: Sequence[Turn]
) -> tuple[Turn, ...]:
    """Those of `turns` whose notes were not deleted, and on which no purged fact rested."""
    if not turns:
        return ()
    hashes = {
        t.turn_id: tombstone_hash(tenant_id, user_id, "note_of_turn", t.turn_id) for t in turns
    }
    dead = await fact_store.tombstoned(conn, user_hash(tenant_id, user_id), list(hashes.values()))
    return tuple(t for t in turns if hashes[t.turn_id] not in dead)
