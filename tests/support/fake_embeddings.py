"""The embeddings endpoint of the fake provider: deterministic vectors, provider-like limits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class FakeEmbeddings:
    """`batch_limit` texts a call (more is 400); `shuffled` answers in reverse order of index."""

    dimensions: int = 64
    batch_limit: int = 2048
    shuffled: bool = False

    def vector(self, text: str) -> list[float]:
        """The unit vector of a text; equal texts have equal vectors, others nearly orthogonal."""
        seed = int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8])
        values = np.random.default_rng(seed).standard_normal(self.dimensions)
        unit: list[float] = (values / np.linalg.norm(values)).tolist()
        return unit

    def answer(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """(HTTP status, body)."""
        inputs = request["input"]
        texts = [inputs] if isinstance(inputs, str) else inputs
        if len(texts) > self.batch_limit:
            message = f"batch size must not exceed {self.batch_limit}"
            return 400, {"error": {"message": message, "type": "invalid_request_error"}}
        data = [
            {"object": "embedding", "index": index, "embedding": self.vector(one)}
            for index, one in enumerate(texts)
        ]
        if self.shuffled:
            data.reverse()
        used = sum(map(len, texts))
        usage = {"prompt_tokens": used, "total_tokens": used}
        return 200, {
            "object": "list",
            "model": request.get("model"),
            "data": data,
            "usage": usage,
        }
