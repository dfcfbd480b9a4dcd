"""Readings: earlier documents like a text, weighted by feedback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from services.common.db import Connection
from services.memory.domain import Reading
from services.memory.recall import calibration_of
from services.memory.store import episodes as vector_store
from services.memory.store import readings as store
from services.memory.vectors import Question
from services.search.bm25 import RamIndex
from services.search.types import FloatArray

USEFUL: Final = 1.25
NOT_USEFUL: Final = 0.75
_MAX_READINGS: Final = 2_000


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


async def similar(
    conn: Connection,
    user_id: str,
    text: str,
    question: Question | None,
    without_document: str,
    top_k: int,
) -> list[ReadingHit]:
    """Earlier readings like `text`, best first; those without a vector are judged by words."""
    rows = [
        r for r in await store.page(conn, user_id, None, _MAX_READINGS)
        if r.document_id != without_document
    ]  # fmt: skip
    if not rows:
        return []
    stored = (
        await vector_store.vectors(conn, user_id, "reading", question.model_id) if question else {}
    )
    return rank(rows, text, question, {i: v.vector for i, v in stored.items()}, top_k)


def rank(
    rows: list[Reading],
    text: str,
    question: Question | None,
    vectors: dict[str, FloatArray],
    top_k: int,
) -> list[ReadingHit]:
    """Similarity is the better of calibrated cosine and word coverage. Pure."""
    calibration = calibration_of(question.model_id if question else "")
    span = calibration.dense_high - calibration.dense_low
    index = RamIndex.of_texts((r.document_id, f"{r.title}\n{r.summary}") for r in rows)
    leg = index.leg(text, len(rows))
    hits: list[ReadingHit] = []
    for reading in rows:
        coverage = leg.scores.get(reading.document_id, 0.0) / (leg.query_weight or 1.0)
        similarity = min(max(coverage, 0.0), 1.0)
        mine = vectors.get(reading.reading_id)
        if question and mine is not None and mine.shape == question.vector.shape:
            cosine = (float(np.dot(mine, question.vector)) - calibration.dense_low) / span
            similarity = max(similarity, min(max(cosine, 0.0), 1.0))
        if similarity > 0.0:
            hits.append(ReadingHit(reading, similarity, similarity * reading.weight))
    hits.sort(key=lambda h: (-h.score, h.reading.document_id))
    return hits[:top_k]
