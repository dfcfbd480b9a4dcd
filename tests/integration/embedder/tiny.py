"""Tiny models with random weights, written to a folder: the real classes, no download."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
    XLMRobertaModel,
)

_HIDDEN = 32
_SIZES = {
    "hidden_size": _HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def _words() -> list[str]:
    latin = "abcdefghijklmnopqrstuvwxyz0123456789"
    return [*latin, *"内存多少服务器支持今天气很好忆年轮", "memory", "yes", "no", "query", ":", "."]


def _tokenizer(special: dict[str, str], template: tuple[str, str] | None) -> Tokenizer:
    """Single characters and a few words; what is unknown becomes the unknown token."""
    names = [*special.values(), *_words()]
    vocabulary = {name: at for at, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    )
    if template:
        tokens = [special["cls_token"], special["sep_token"]]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template[0],
            pair=template[1],
            special_tokens=[(token, vocabulary[token]) for token in tokens],
        )
    return tokenizer


def _save_tokenizer(folder: Path, tokenizer: Tokenizer, special: dict[str, str]) -> int:
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if special is BERT else [])]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=64, model_input_names=names, **special
    )
    fast.save_pretrained(folder)
    return len(fast)


XLMR = {
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
}
BERT = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}


def _xlmr_config(size: int) -> XLMRobertaConfig:
    return XLMRobertaConfig(
        vocab_size=size,
        max_position_embeddings=66,
        type_vocab_size=1,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        num_labels=1,
        **_SIZES,
    )


def bge_m3(folder: Path) -> Path:
    """BGE-M3's shape: XLM-R, a sparse head and a token vector head."""
    torch.manual_seed(0)
    tokenizer = _tokenizer(XLMR, ("<s> $A </s>", "<s> $A </s> </s> $B </s>"))
    size = _save_tokenizer(folder, tokenizer, XLMR)
    XLMRobertaModel(_xlmr_config(size)).save_pretrained(folder)
    torch.save(torch.nn.Linear(_HIDDEN, _HIDDEN).state_dict(), folder / "colbert_linear.pt")
    torch.save(torch.nn.Linear(_HIDDEN, 1).state_dict(), folder / "sparse_linear.pt")
    return folder


def bge_reranker(folder: Path) -> Path:
    """BGE reranker v2's shape: XLM-R with one logit."""
    torch.manual_seed(1)
    tokenizer = _tokenizer(XLMR, ("<s> $A </s>", "<s> $A </s> </s> $B </s>"))
    size = _save_tokenizer(folder, tokenizer, XLMR)
    model = XLMRobertaForSequenceClassification(_xlmr_config(size))
    _spread(model)
    model.save_pretrained(folder)
    return folder


def cross_encoder(folder: Path) -> Path:
    """A MiniLM cross-encoder's shape: BERT with segments and one logit."""
    torch.manual_seed(2)
    tokenizer = _tokenizer(BERT, ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"))
    size = _save_tokenizer(folder, tokenizer, BERT)
    config = BertConfig(
        vocab_size=size, max_position_embeddings=64, num_labels=1, pad_token_id=0, **_SIZES
    )
    model = BertForSequenceClassification(config)
    _spread(model)
    model.save_pretrained(folder)
    return folder


def qwen3(folder: Path) -> Path:
    """Qwen3's shape: a causal language model whose vocabulary has yes and no."""
    torch.manual_seed(3)
    special = {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>", "unk_token": "<unk>"}
    size = _save_tokenizer(folder, _tokenizer(special, None), special)
    config = Qwen3Config(
        vocab_size=size, max_position_embeddings=512, num_key_value_heads=2, head_dim=8, **_SIZES
    )
    model = Qwen3ForCausalLM(config)
    _spread(model)
    model.save_pretrained(folder)
    return folder


def _spread(model: torch.nn.Module) -> None:
    """Fresh weights are so small that every score is the same; enlarge them."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)
