"""Values that pass between the legs, the engine and its callers. Pure data, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


class Leg(StrEnum):
    """A way of recall. `RERANK` and `FUSED` only appear in explanations."""

    DENSE = "dense"
    LEXICAL = "lexical"
    PHRASE = "phrase"


class LegState(StrEnum):
    """What became of a leg in one search."""

    OK = "ok"
    FAILED = "failed"
    """Could not answer (its model or store is down or late): the other legs decide, flagged."""
    SKIPPED = "skipped"
    """Not asked: its weight is 0, the recipe lacks it, or the query has nothing for it."""


class Confidence(StrEnum):
    """How sure the engine is that the best hit answers the query (absolute, per model)."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(frozen=True)
class LegResult:
    """What one leg found.

    `scores` maps item id -> raw score (dense: inner product of normalised vectors in [-1,1];
    lexical: BM25 > 0; phrase: [0,1]), from the leg's own top k. `extra` are scores of further items
    that the leg did not recall but that are worth knowing, such as the exact inner product
    of lexical candidates: they take part in fusion but give no rank. A lexical or phrase leg that
    lacks an item gives it no vote; a dense leg that lacks one counts as its lowest recalled score.

    `query_weight` (lexical) is the sum of the idf of all query terms, terms unknown to the scope
    included, times (k1 + 1): the score of a perfect match. `background` (dense) is (mean, standard
    deviation) of the inner product over the scope, where an exact scan saw all of it.
    `state`/`reason` tell whether the leg could answer; `reason` is for people.
    """

    leg: Leg
    scores: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, float] = field(default_factory=dict)
    state: LegState = LegState.OK
    reason: str = ""
    query_weight: float = 0.0
    background: tuple[float, float] | None = None

    def ranked(self) -> list[str]:
        """Ids best first; ties by id, so that the order never depends on the store."""
        return sorted(self.scores, key=lambda i: (-self.scores[i], i))


@dataclass(frozen=True)
class Item:
    """What the engine may know of a candidate; only `id` is needed.

    `duplicate_of_key`: content hash; equal keys collapse to one hit that names all sources.
    `group` and `position`: the sequence an item stands in (session of a turn, document of a chunk)
    and its place there; they carry neighbour and session propagation. `vector`: (d,) float32,
    normalised, for MMR and near-duplicates; `space`: the model that made it, only vectors of one
    are compared. `tokens`: packed token vectors (`late.py`).
    """

    id: str
    text: str = ""
    document_id: str = ""
    kind: str = ""
    content_hash: str = ""
    group: str = ""
    position: int = 0
    time: datetime | None = None
    vector: FloatArray | None = None
    space: str = ""
    tokens: bytes | None = None


@dataclass(frozen=True)
class RerankResult:
    """Scores of the head. `scores`: id -> score, higher is better.

    `complete` is False when time or pairs ran out: the rest of the head keeps its fused order.
    """

    scores: Mapping[str, float] = field(default_factory=dict)
    complete: bool = True
    reason: str = ""
    absolute: bool = False
    """True for late interaction (`late.py`): comparable between queries, fused on its own scale and
    seen by the gate. False: a reranker of unknown scale, z-scored within the head."""


class DegradationCode(StrEnum):
    """What an answer had to do without; the services map it to their contract's enum."""

    LEG_FAILED = "leg_failed"
    RERANK_PARTIAL = "rerank_partial"
    RERANK_FAILED = "rerank_failed"


@dataclass(frozen=True)
class Degradation:
    """One thing that was missing. `subject`: the leg, model or reranker it is about."""

    code: DegradationCode
    subject: str
    reason: str = ""


@dataclass(frozen=True)
class LegVote:
    """A leg's part in one hit: rank (1 = best, 0 = not recalled), raw and calibrated score."""

    rank: int
    score: float
    calibrated: float


@dataclass(frozen=True)
class Evidence:
    """What speaks for one hit, as the gate sees it. None where a leg or the reranker does not know.

    `dense`: raw inner product; `coverage`: BM25 over the score of a perfect match, [0,1];
    `phrase`: [0,1]; `rerank`: raw late interaction. `length`, `query_length`: estimated tokens.
    `crosses`: query and text are in different languages; `chinese`: both are Chinese. `lead`: how
    far the inner product stands above the tenth best of the dense leg (0 where that is not known).
    `held`: share of the query's terms that the text holds, [0,1].
    """

    dense: float | None
    coverage: float | None
    phrase: float | None
    rerank: float | None
    length: float = 0.0
    query_length: float = 0.0
    crosses: bool = False
    chinese: bool = False
    lead: float = 0.0
    held: float = 0.0


@dataclass(frozen=True)
class Hit:
    """One result with the whole calculation that led to it."""

    id: str
    score: float
    """Final score, the order of the list. In [0,1] for the calibrated recipes."""
    votes: Mapping[Leg, LegVote]
    fused: float
    rerank: float | None = None
    propagated: float = 0.0
    """What neighbours and session added (already within `score`)."""
    quality: float = 1.0
    decay: float = 1.0
    duplicates: tuple[str, ...] = ()
    """Ids of the equal or nearly equal items that this hit stands for."""


@dataclass(frozen=True)
class Ranking:
    """Outcome of a search."""

    hits: tuple[Hit, ...]
    confidence: Confidence
    relevance: float
    """Calibrated probability in [0,1] that the best hit is relevant."""
    held_back: int = 0
    """Candidates that the gate kept out."""
    collapsed: int = 0
    """Candidates dropped as duplicates or by the cap per document."""
    degradations: Sequence[Degradation] = ()
    leg_weights: Mapping[Leg, float] = field(default_factory=dict)
    """Weight each leg had in this query, after confidence."""
    evidence: Evidence | None = None
    """What the gate saw of the first hit, held back or not; None without candidates."""
