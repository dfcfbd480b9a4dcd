"""Where hits stand and the text around them, loaded after ranking for the few that are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from services.common.db import Connection, Database
from services.retriever.domain import StoredChunk
from services.retriever.searcher import Outcome
from services.retriever.spec import Context
from services.retriever.store import hits, items
from services.retriever.store.hits import Place

_PER_ITEM = 21
_SECTION_REACH = 40


@dataclass(frozen=True)
class Around:
    """Text around a hit."""

    neighbours: Sequence[StoredChunk]
    parent_text: str


async def load(db: Database, outcome: Outcome) -> tuple[dict[str, list[Place]], dict[str, Around]]:
    """Places of every hit (its own item's first, then those of what collapsed into it), and the
    text around it where the search asked for that. A hit whose document is gone has no place."""
    shown = outcome.ranking.hits
    places: dict[str, list[Place]] = {h.id: [] for h in shown}
    around: dict[str, Around] = {}
    if not shown:
        return places, around
    async with db.tenant() as conn:
        by_id = await _places(conn, outcome, [i for h in shown for i in (h.id, *h.duplicates)])
        for hit in shown:
            if not by_id.get(hit.id):
                continue
            for one in (hit.id, *hit.duplicates):
                places[hit.id].extend(by_id.get(one, ()))
        if outcome.spec.context.wanted:
            for hit in shown:
                if places[hit.id]:
                    number, item = outcome.of(hit.id)
                    chunk = outcome.results[number].candidates[item].chunk
                    collection = outcome.scopes[number].scope.collection_id
                    around[hit.id] = await _around(conn, collection, chunk, outcome.spec.context)
    return places, around


async def _places(
    conn: Connection, outcome: Outcome, ids: Sequence[str]
) -> Mapping[str, list[Place]]:
    out: dict[str, list[Place]] = {}
    for number, asked in enumerate(outcome.scopes):
        wanted = [item for n, item in map(outcome.of, ids) if n == number]
        if not wanted:
            continue
        for place in await hits.places(conn, asked.scope, wanted, _PER_ITEM):
            key = f"{number}:{place.item}"
            out.setdefault(key, []).append(replace(place, item_key=key))
    return out


async def _around(
    conn: Connection, collection_id: str, chunk: StoredChunk, wanted: Context
) -> Around:
    reach = _SECTION_REACH if wanted.parent else 0
    found = await items.section_chunks(
        conn,
        collection_id,
        chunk.document_id,
        chunk.ordinal - max(wanted.before, reach),
        chunk.ordinal + max(wanted.after, reach),
    )
    neighbours = [
        c
        for c in found
        if c.ordinal != chunk.ordinal
        and chunk.ordinal - wanted.before <= c.ordinal <= chunk.ordinal + wanted.after
    ]
    parent = ""
    if wanted.parent:
        parent = _parent(found, chunk, wanted.max_parent_chars)
    return Around(neighbours, parent)


def _parent(found: Sequence[StoredChunk], chunk: StoredChunk, limit: int) -> str:
    """The chunk's section, grown from the chunk outwards while it fits."""
    same = {c.ordinal: c for c in found if c.section == chunk.section}
    chosen = [chunk]
    size = len(chunk.text)
    low = high = chunk.ordinal
    while True:
        grown = False
        for ordinal in (high + 1, low - 1):
            part = same.get(ordinal)
            if part is None or size + len(part.text) > limit:
                continue
            chosen.append(part)
            size += len(part.text)
            low, high = min(low, ordinal), max(high, ordinal)
            grown = True
        if not grown:
            return joined(sorted(chosen, key=lambda c: c.ordinal))


def joined(chunks: Sequence[StoredChunk]) -> str:
    """Texts of neighbouring chunks in one, each table header once."""
    out: list[str] = []
    header = ""
    for part in chunks:
        text = part.text
        repeated = bool(part.header) and part.header == header
        if repeated:
            text = text.removeprefix(part.header).lstrip("\n")
        header = part.header
        out.append(("\n" if repeated else "\n\n" if out else "") + text)
    return "".join(out)
