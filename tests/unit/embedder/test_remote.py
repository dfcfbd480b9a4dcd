"""Remote providers over real HTTP: batch limit, order, Retry-After, encodings, refusals."""

from __future__ import annotations

import base64
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from services.embedder.backends import openai
from services.embedder.model import InputType, Kind, ModelRefused, ModelUnavailable
from services.embedder.remote_http import retry_after
from services.embedder.rerankers import remote
from services.embedder.settings import ModelSettings, RemoteSettings, RerankerSettings
from tests.support.fake_provider import Answer, Provider

DENSE = frozenset({Kind.DENSE})


@pytest.fixture
def provider() -> Iterator[Provider]:
    server = Provider()
    yield server
    server.stop()


def vector(text: str) -> list[float]:
    return [3.0 * len(text), 4.0 * len(text)]


def embeddings(payload: dict[str, Any]) -> dict[str, Any]:
    """A good answer, last text first."""
    data = [{"index": at, "embedding": vector(text)} for at, text in enumerate(payload["input"])]
    return {"data": data[::-1]}


def model(provider: Provider, **remote_settings: Any) -> openai.OpenAiModel:
    settings = RemoteSettings(
        api_key=SecretStr("k"), **{"base_url": provider.url, "retry_s": 5.0, **remote_settings}
    )
    return openai.load(ModelSettings(id="far", backend="openai", remote=settings))


def test_e7_batch_limit_order_and_retry_after(provider: Provider) -> None:
    limited_at: list[float] = []

    def answer(_path: str, payload: dict[str, Any]) -> Answer:
        if len(payload["input"]) > 10:
            return 400, {}, {}
        if "text 13" in payload["input"] and not limited_at:
            limited_at.append(time.monotonic())
            return 429, {"retry-after": "1"}, {}
        return 200, {}, embeddings(payload)

    provider.answer = answer
    far = model(provider)
    assert far.info.dimensions == 2
    texts = [f"text {n}" for n in range(35)]
    prepared = far.prepare(texts, InputType.DOCUMENT, 512)
    found = far.forward(prepared, DENSE)
    assert time.monotonic() - limited_at[0] >= 1.0
    for one in found:
        np.testing.assert_allclose(one.dense, [0.6, 0.8], atol=1e-6)
    assert len(found) == 35
    assert max(len(payload["input"]) for _, payload in provider.calls) == 10
    assert set(provider.authorizations) == {"Bearer k"}
    far.close()


def test_an_answer_that_cannot_be_decoded_is_an_outage(provider: Provider) -> None:
    provider.answer = lambda _, payload: (200, {}, embeddings(payload))
    far = model(provider, retry_s=0.0)
    provider.answer = lambda _, payload: (200, {"content-encoding": "gzip"}, embeddings(payload))
    with pytest.raises(ModelUnavailable, match="DecodingError"):
        far.forward(far.prepare(["a"], InputType.DOCUMENT, 512), DENSE)
    far.close()


def test_an_address_that_is_none_is_named(provider: Provider) -> None:
    with pytest.raises(ModelUnavailable, match="base_url"):
        model(provider, base_url="http://far:port/v1")


def test_a_model_that_is_not_needed_shows_its_dimensions_once_it_answers(
    provider: Provider,
) -> None:
    settings = ModelSettings(
        id="far",
        backend="openai",
        dimensions=(1, 4),
        remote=RemoteSettings(base_url=provider.url, retry_s=60.0),
    )
    provider.answer = lambda _, __: (503, {"retry-after": "1"}, {})
    far = openai.load(settings, needed=False)
    assert (len(provider.calls), far.info.dimensions) == (1, 0)
    provider.answer = lambda _, payload: (200, {}, embeddings(payload))
    far.forward(far.prepare(["a"], InputType.DOCUMENT, 512), DENSE)
    assert (far.info.dimensions, far.info.supported_dimensions) == (2, (2, 1))
    far.close()


def test_vectors_follow_their_index(provider: Provider) -> None:
    def answer(_path: str, payload: dict[str, Any]) -> Answer:
        data = [
            {"index": at, "embedding": [1.0, float(text)] if text.isdigit() else [1.0, 0.0]}
            for at, text in enumerate(payload["input"])
        ]
        return 200, {}, {"data": data[::-1]}

    provider.answer = answer
    far = model(provider)
    found = far.forward(far.prepare(["1", "2", "3"], InputType.QUERY, 512), DENSE)
    ratios = [float(one.dense[1] / one.dense[0]) for one in found if one.dense is not None]
    assert ratios == pytest.approx([1.0, 2.0, 3.0])
    far.close()


def test_base64_vectors(provider: Provider) -> None:
    def answer(_path: str, payload: dict[str, Any]) -> Answer:
        assert payload["encoding_format"] == "base64"
        packed = base64.b64encode(struct.pack("<2f", 3.0, 4.0)).decode()
        data = [{"index": at, "embedding": packed} for at in range(len(payload["input"]))]
        return 200, {}, {"data": data}

    provider.answer = answer
    far = model(provider, encoding="base64")
    found = far.forward(far.prepare(["a"], InputType.QUERY, 512), DENSE)
    np.testing.assert_allclose(found[0].dense, [0.6, 0.8], atol=1e-6)
    far.close()


@pytest.mark.parametrize(
    ("status", "error"), [(400, ModelRefused), (401, ModelUnavailable), (503, ModelUnavailable)]
)
def test_refusals_are_told_apart(provider: Provider, status: int, error: type[Exception]) -> None:
    provider.answer = lambda _, payload: (200, {}, embeddings(payload))
    far = model(provider, retry_s=0.3)
    provider.answer = lambda *_: (status, {}, {"error": "no"})
    with pytest.raises(error):
        far.forward(far.prepare(["a"], InputType.QUERY, 512), DENSE)
    far.close()


@pytest.mark.parametrize(
    "data",
    [
        [],
        [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 7, "embedding": [1.0]}],
    ],
)
def test_an_answer_that_does_not_fit_is_an_error(data: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="answer"):
        openai.in_order({"data": data}, 2)


def test_a_null_in_a_vector_is_no_number() -> None:
    assert np.isnan(openai.decode([None, 1.0])).any()


def test_token_estimates_count_chinese_characters() -> None:
    assert openai.estimated("中文" * 10, 512).tokens == 20
    assert openai.estimated("word " * 8, 512).tokens == 10
    cut = openai.estimated("中" * 1_000, 100)
    assert (cut.truncated, len(cut.text)) == (True, 100)


def test_retry_after_as_seconds_and_as_a_date() -> None:
    assert retry_after("2.5") == 2.5
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry_after("soon") is None


@pytest.mark.parametrize(
    ("style", "form"), [("rerank", "results"), ("rerank", "bare"), ("score", "data")]
)
def test_remote_rerankers(provider: Provider, style: Any, form: str) -> None:
    def answer(path: str, payload: dict[str, Any]) -> Answer:
        texts = payload["text_2"] if path.endswith("/score") else payload["documents"]
        name = "relevance_score" if form == "results" else "score"
        entries = [{"index": at, name: len(text) / 10} for at, text in enumerate(texts)]
        return 200, {}, entries[::-1] if form == "bare" else {form: entries[::-1]}

    provider.answer = answer
    settings = RemoteSettings(base_url=provider.url, batch_limit=2)
    far = remote.load(
        RerankerSettings(id="r", backend="remote", remote=settings, style=style, path="name")
    )
    pairs = [*far.prepare_pairs("q", ["a", "bb", "ccc"]), *far.prepare_pairs("p", ["dddd"])]
    assert far.score(pairs) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert {path for path, _ in provider.calls} == {f"/v1/{style}"}
    assert len(provider.calls) == 3
    far.close()


def test_closing_ends_the_wait_for_a_provider(provider: Provider) -> None:
    provider.answer = lambda _, payload: (200, {}, embeddings(payload))
    far = model(provider, retry_s=60.0)
    provider.answer = lambda *_: (429, {"retry-after": "30"}, {})
    began = time.monotonic()
    threading.Timer(0.1, far.close).start()
    with pytest.raises((ModelUnavailable, RuntimeError)):
        far.forward(far.prepare(["a"], InputType.QUERY, 512), DENSE)
    assert time.monotonic() - began < 5.0
