"""Cache, calibration, compressed token vectors, health of rerankers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.embedder.cache import VectorCache, key
from services.embedder.calibration import calibrated
from services.embedder.compression import compress
from services.embedder.convert import shortened
from services.embedder.model import Calibration, InputType, Kind, Vectors
from services.embedder.rerank_health import RerankHealth
from services.search import late

DENSE = frozenset({Kind.DENSE})


def rows(count: int, size: int = 16, seed: int = 0) -> np.ndarray:
    made = np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def test_the_cache_stays_within_its_bytes_and_drops_the_oldest() -> None:
    cache = VectorCache(10_000)
    keys = [key("m", "1", InputType.QUERY, 512, DENSE, str(n)) for n in range(100)]
    for one in keys:
        cache.put(one, Vectors(dense=np.zeros(100, dtype=np.float32)), 3, False)
        assert cache.bytes <= 10_000
    assert cache.get(keys[0]) is None
    assert cache.get(keys[-1]) is not None
    assert len(cache) == 12


def test_a_cache_of_size_zero_holds_nothing() -> None:
    cache = VectorCache(0)
    one = key("m", "1", InputType.QUERY, 512, DENSE, "a")
    cache.put(one, Vectors(dense=np.zeros(1, dtype=np.float32)), 1, False)
    assert cache.get(one) is None


def test_keys_tell_apart_everything_that_changes_a_vector() -> None:
    base = ("m", "1", InputType.QUERY, 512, DENSE, "a")
    others = [
        ("n", "1", InputType.QUERY, 512, DENSE, "a"),
        ("m", "2", InputType.QUERY, 512, DENSE, "a"),
        ("m", "1", InputType.DOCUMENT, 512, DENSE, "a"),
        ("m", "1", InputType.QUERY, 64, DENSE, "a"),
        ("m", "1", InputType.QUERY, 512, frozenset({Kind.SPARSE}), "a"),
        ("m", "1", InputType.QUERY, 512, DENSE, "b"),
    ]
    assert len({key(*parts) for parts in [base, *others]}) == 7


@given(st.floats(-50, 50), st.floats(-50, 50))
def test_calibrated_scores_keep_the_order_within_zero_and_one(a: float, b: float) -> None:
    anchors = Calibration(0.7, 0.8, 0.95)
    low, high = sorted((a, b))
    assert 0.0 <= calibrated(low, anchors) <= calibrated(high, anchors) <= 1.0


def test_calibrated_anchors() -> None:
    anchors = Calibration(0.7, 0.8, 0.95)
    found = [calibrated(raw, anchors) for raw in (0.7, 0.8, 0.95)]
    assert found == pytest.approx([0.05, 0.5, 0.95])


def test_compressed_token_vectors_are_the_engines_own_within_a_hundredth() -> None:
    codec = late.TokenCodec("test", np.zeros(32, np.float32), np.eye(32, dtype=np.float32), 40)
    for count in (1, 40, 90):
        passage = rows(count, 32, seed=count)
        packed = compress(codec, passage)
        assert packed.values.shape == (min(count, 40), 32)
        expected = late.pool_neighbours(codec.project(passage), 40)
        np.testing.assert_allclose(packed.values * packed.scales[:, None], expected, atol=0.01)


def test_shortened_vectors_have_length_one() -> None:
    short = shortened(rows(1)[0], 4)
    assert short.shape == (4,)
    assert float(np.linalg.norm(short)) == pytest.approx(1.0)


def test_e8_a_reranker_with_constant_scores_is_unhealthy() -> None:
    health = RerankHealth()
    for _ in range(2):
        assert health.healthy("m")
        health.observe("m", ["a", "b", "c"], {0: 0.5, 1: 0.5, 2: 0.5})
    assert not health.healthy("m")
    health.observe("m", ["a", "b", "c"], {0: 0.5, 1: 0.4, 2: 0.5})
    assert health.healthy("m")
    health.observe("n", ["a", "a", "a"], {0: 0.5, 1: 0.5, 2: 0.5})
    health.observe("n", ["a", "a", "a"], {0: 0.5, 1: 0.5, 2: 0.5})
    assert health.healthy("n"), "equal texts have equal scores"
