"""Tokenising query and document into one sequence."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

from services.embedder.model import Calibration, Prepared

# The logistic curve through these anchors is the plain sigmoid of a logit.
LOGIT = Calibration(unrelated=-2.9444389791664403, relevant=0.0, exact=2.9444389791664403)
# Characters looked at before tokenising, per token of the limit.
_CHARS_PER_TOKEN = 8


def encode_pairs(
    tokenizer: Tokenizer, query: str, documents: Sequence[str], max_tokens: int
) -> list[Prepared]:
    """Pairs with the tokenizer's own special tokens. The query gets at most half of the limit, and
    only the document is cut to the rest. `split` is where the second segment begins."""
    cap = max_tokens * _CHARS_PER_TOKEN
    question = tokenizer.encode(query[:cap], add_special_tokens=False)
    question.truncate(max_tokens // 2)
    special = tokenizer.num_special_tokens_to_add(True)
    room = max_tokens - len(question.ids) - special
    texts = [document[:cap] for document in documents]
    prepared = []
    for text, found in zip(
        texts, tokenizer.encode_batch(texts, add_special_tokens=False), strict=True
    ):
        truncated = len(found.ids) > room
        if truncated:
            found.truncate(room)
        pair = tokenizer.post_process(question, found)
        split = next((at for at, kind in enumerate(pair.type_ids) if kind), 0)
        prepared.append(Prepared(query, tuple(pair.ids), len(pair.ids), truncated, text, split))
    return prepared
