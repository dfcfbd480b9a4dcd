"""Qwen3-Reranker: a language model asked whether the document answers the query.

The prompt is the one of the model's training, with an empty think block; without it the model
orders wrongly. The score is the difference of the logits of "yes" and "no" after it, so that its
sigmoid is the probability of "yes" among the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from services.embedder.backends import torch_device
from services.embedder.backends.tokens import bare_tokenizer
from services.embedder.model import ModelInfo, ModelUnavailable, Prepared
from services.embedder.rerankers.classifier import describe
from services.embedder.settings import RerankerSettings

PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and"
    ' the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_DEFAULT = "Qwen/Qwen3-Reranker-0.6B"
_LIMIT = 8_192
_CHARS_PER_TOKEN = 8


class Qwen3Reranker:
    """`PairModel` over a causal language model; only two rows of its output layer are used."""

    def __init__(
        self, model: Any, fast: Any, info: ModelInfo, instruction: str, device: torch.device
    ) -> None:
        self._model = model.to(device).eval()
        self._tokenizer: Tokenizer = bare_tokenizer(fast)
        self._pad = int(fast.pad_token_id or 0)
        self._info = info
        self._instruction = instruction or INSTRUCTION
        self._device = device
        self._prefix = self._ids(PREFIX)
        self._suffix = self._ids(SUFFIX)
        answers = [fast.convert_tokens_to_ids(word) for word in ("no", "yes")]
        if None in answers or answers[0] == answers[1]:
            raise ModelUnavailable("the model's vocabulary lacks the tokens yes and no")
        self._answers = torch.tensor(answers, device=device)

    @property
    def info(self) -> ModelInfo:
        """The model's description."""
        return self._info

    def prepare_pairs(self, query: str, documents: Sequence[str]) -> list[Prepared]:
        """The prompt of each pair; only the part between prefix and suffix is cut."""
        room = self._info.max_tokens - len(self._prefix) - len(self._suffix)
        cap = self._info.max_tokens * _CHARS_PER_TOKEN
        bodies = [body(self._instruction, query, document[:cap]) for document in documents]
        prepared = []
        for text, found in zip(
            bodies, self._tokenizer.encode_batch(bodies, add_special_tokens=False), strict=True
        ):
            ids = (*self._prefix, *found.ids[:room], *self._suffix)
            prepared.append(Prepared(text, ids, len(ids), len(found.ids) > room))
        return prepared

    def score(self, batch: Sequence[Prepared]) -> list[float]:
        """Logit of yes minus logit of no."""
        with torch_device.forward_pass():
            # Padding comes last: no token looks ahead, so it changes nothing before it.
            features = torch_device.batch_tensors(
                [item.ids for item in batch], self._pad, self._device
            )
            states = self._model.model(**features).last_hidden_state
            ends = torch.tensor([len(item.ids) - 1 for item in batch], device=self._device)
            last = states[torch.arange(len(batch), device=self._device), ends]
            rows = self._model.get_output_embeddings().weight[self._answers]
            logits = (last @ rows.T).float()
            found: list[float] = (logits[:, 1] - logits[:, 0]).cpu().tolist()
        return found

    def close(self) -> None:
        """Give the device's memory back."""
        self._model.to("cpu")
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)


def body(instruction: str, query: str, document: str) -> str:
    """What stands between prefix and suffix."""
    return f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"


def load(settings: RerankerSettings) -> Qwen3Reranker:
    """Load a folder or hub id. Raises ModelUnavailable."""
    device = torch_device.choose_device(settings.device)
    dtype = torch_device.choose_dtype(settings.dtype, device)
    path = settings.path or _DEFAULT
    try:
        fast = AutoTokenizer.from_pretrained(path)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{path!r} does not load: {error}") from error
    limit = min(_LIMIT, int(model.config.max_position_embeddings))
    info = describe(settings, "qwen3", path, limit, device, dtype)
    return Qwen3Reranker(model, fast, info, settings.instruction, device)
