"""Fitting a model's anchors and its gate from labelled samples. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from services.retriever.reading.sentences import sentences
from services.search import calibration as shipped
from services.search.calibration import Calibration

OFF_TOPIC: Final = (
    "sourdough starter feeding schedule", "offside rule in football",
    "how to prune an apple tree in winter", "best opening against the Sicilian defence",
    "symptoms of vitamin D deficiency", "knitting pattern for a baby hat",
    "when is high tide in Brest", "how to tune a twelve-string guitar",
    "chords of a bossa nova", "visa rules for a trip to Bhutan",
    "world record in pole vault", "how to remove red wine stains",
    "红烧肉怎么做才不腻", "围棋定式有哪些", "婴儿几个月可以吃辅食", "怎么给绿萝换盆",
    "今年世界杯在哪里举行", "羽毛球拍怎么穿线", "唐代诗人有哪些", "如何去除衣服上的油渍",
    "猫咪绝育后注意事项", "去西藏旅游几月份最好", "二胡入门曲目", "打太极拳的基本步法",
)  # fmt: skip
"""Questions that hardly any collection answers, in both languages."""

_STEPS: Final = 2_000
_RATE: Final = 0.5
_DECAY: Final = 1e-3
_MIN_SAMPLES: Final = 10
_KEPT: Final = 0.97


@dataclass(frozen=True)
class Sample:
    """Raw scores of one question's passage. `dense` None: it had no vector."""

    dense: float | None
    coverage: float
    relevant: bool


def questions_of(passages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(document id, question) made of passages: the middle sentence, without its last third.

    A question made of a passage's words is easier than a real one, so the anchors are a little
    high; pairs from real use are better and may be given instead.
    """
    out: list[tuple[str, str]] = []
    for document_id, text in passages:
        spans = [text[a:b].strip() for a, b in sentences(text)]
        fit_ones = [s for s in spans if 12 <= len(s) <= 300]
        if fit_ones:
            middle = fit_ones[len(fit_ones) // 2]
            out.append((document_id, middle[: max(8, len(middle) * 2 // 3)]))
    return out


def fit(model_id: str, samples: Sequence[Sample]) -> Calibration | None:
    """Anchors from the scores' distribution, then a logistic gate; None with too few samples.

    The low anchor is the median score of questions without an answer, the high one the 90th
    percentile of those with one. The gate keeps 97 % of the answered questions.
    """
    good = [s for s in samples if s.relevant and s.dense is not None]
    bad = [s for s in samples if not s.relevant and s.dense is not None]
    if len(good) < _MIN_SAMPLES or len(bad) < _MIN_SAMPLES:
        return None
    low = float(np.median([s.dense for s in bad if s.dense is not None]))
    high = float(np.quantile([s.dense for s in good if s.dense is not None], 0.9))
    high = max(high, low + 0.02)
    base = shipped.shipped(model_id) or shipped.SHIPPED[shipped.DEFAULT_MODEL]
    features = np.asarray(
        [[1.0, ((s.dense or low) - low) / (high - low), s.coverage] for s in (*good, *bad)]
    )
    labels = np.asarray([1.0] * len(good) + [0.0] * len(bad))
    # Both kinds count the same, however many there are of each.
    weights = np.where(labels > 0, 0.5 / len(good), 0.5 / len(bad))
    beta = np.zeros(3)
    for _ in range(_STEPS):
        probability = 1.0 / (1.0 + np.exp(-features @ beta))
        gradient = features.T @ (weights * (probability - labels)) + _DECAY * beta
        beta -= _RATE * 10 * gradient
    kept = np.quantile(1.0 / (1.0 + np.exp(-features[: len(good)] @ beta)), 1.0 - _KEPT)
    none_below = float(np.clip(kept, 0.05, 0.6))
    return replace(
        base,
        model_id=model_id,
        dense_low=low,
        dense_high=high,
        gate_bias=float(beta[0]),
        gate_dense=float(beta[1]),
        gate_lexical=float(beta[2]),
        gate_rerank=0.0,
        late_gate=(),  # fitted without it
        none_below=none_below,
        medium_from=max(0.7, none_below + 0.1),
        high_from=max(0.9, none_below + 0.2),
    )
