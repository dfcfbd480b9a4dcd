"""Readings: earlier documents like a text, weighted by feedback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from services.common.db import Connection
from services.memory.domain import Reading
from services.memory.recall import calibration_of
from services.memory.store import episodes as vector_store
from services.memory.store import readings as store
from services.memory.threads import by_size
from services.memory.vectors import Question
from services.search.bm25 import RamIndex
from services.search.types import FloatArray

USEFUL: Final = 1.25
NOT_USEFUL: Final = 0.75
_MAX_READINGS: Final = 2_000
_WORDS_EACH: Final = 2_000
_WORDS_TOGETHER: Final = 200_000
"""Characters that are judged by their words in one call; beyond them only titles are."""


@dataclass(frozen=True)
class Shelf:
    """What a user has read, latest first, as one transaction saw it: `vectors` by reading;
    `beyond`: how many older ones are not looked at; `pending`: how many have no vector that the
    question could be compared with."""

    rows: Sequence[Reading] = ()
    vectors: Mapping[str, FloatArray] = field(default_factory=dict)
    beyond: int = 0
    pending: int = 0


@dataclass(frozen=True)
class ReadingHit:
    """A reading with score = similarity x weight; similarity in [0, 1]."""

    reading: Reading
    similarity: float
    score: float


def title_of(title: str, metadata: Mapping[str, object]) -> str:
    """Title, else metadata "title", else "file_name", else ""."""
    for found in (title, metadata.get("title"), metadata.get("file_name")):
        if isinstance(found, str) and found.strip():
            return found.strip()[:500]
    return ""


async def read(
    conn: Connection, user_id: str, question: Question | None, without_document: str
) -> Shelf:
    """What `similar` compares with, but for one document."""
    rows = await store.page(conn, user_id, None, _MAX_READINGS + 1)
    beyond = 0
    if len(rows) > _MAX_READINGS:
        rows = rows[:_MAX_READINGS]
        beyond = await store.count_others(conn, user_id, "") - len(rows)
    rows = [r for r in rows if r.document_id != without_document]
    if not rows or question is None:
        return Shelf(rows, {}, beyond)
    stored = await vector_store.vectors(conn, user_id, "reading", question.model_id)
    pending = sum(r.reading_id not in stored for r in rows)
    return Shelf(rows, {i: v.vector for i, v in stored.items()}, beyond, pending)


async def similar(
    shelf: Shelf, text: str, question: Question | None, top_k: int
) -> list[ReadingHit]:
    """Earlier readings like `text`, best first; those without a vector are judged by words. To be
    called without a connection."""
    if not shelf.rows:
        return []
    texts = _texts(shelf)
    size = len(text) + sum(map(len, texts.values()))
    return await by_size(size, lambda: rank(shelf, texts, text, question, top_k))


def _texts(shelf: Shelf) -> dict[str, str]:
    """Text by document, as much of it as is judged by words: of those without a vector first."""
    texts: dict[str, str] = {}
    left = _WORDS_TOGETHER
    for reading in sorted(shelf.rows, key=lambda r: r.reading_id in shelf.vectors):
        text = f"{reading.title}\n{reading.summary}"[:_WORDS_EACH]
        if len(text) > left:
            text = reading.title
        left -= len(text)
        texts[reading.document_id] = text
    return texts


def rank(
    shelf: Shelf, texts: Mapping[str, str], text: str, question: Question | None, top_k: int
) -> list[ReadingHit]:
    """Similarity is the better of calibrated cosine and word coverage. Pure."""
    calibration = calibration_of(question.model_id if question else "")
    span = calibration.dense_high - calibration.dense_low
    index = RamIndex.of_texts(texts.items())
    leg = index.leg(text, len(texts))
    hits: list[ReadingHit] = []
    for reading in shelf.rows:
        coverage = leg.scores.get(reading.document_id, 0.0) / (leg.query_weight or 1.0)
        similarity = min(max(coverage, 0.0), 1.0)
        mine = shelf.vectors.get(reading.reading_id)
        if question and mine is not None and mine.shape == question.vector.shape:
            cosine = (float(np.dot(mine, question.vector)) - calibration.dense_low) / span
            similarity = max(similarity, min(max(cosine, 0.0), 1.0))
        if similarity > 0.0:
            hits.append(ReadingHit(reading, similarity, similarity * reading.weight))
    hits.sort(key=lambda h: (-h.score, h.reading.document_id))
    return hits[:top_k]
