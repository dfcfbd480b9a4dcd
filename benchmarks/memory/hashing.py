"""An embedding that takes next to no time and gives equal texts equal vectors: speed is measured
without the model. Needs numpy alone, so that peers in an environment of their own share it."""

from __future__ import annotations

import hashlib

import numpy as np

DIMENSIONS = 384


def hashed_vector(text: str) -> list[float]:
    """A unit vector (DIMENSIONS) made of the text's characters."""
    out = np.zeros(DIMENSIONS, np.float32)
    for first, second in zip(text, text[1:] + " ", strict=False):
        digest = hashlib.blake2b((first + second).encode(), digest_size=4).digest()
        out[int.from_bytes(digest[:2], "big") % DIMENSIONS] += 1.0
    length = float(np.linalg.norm(out)) or 1.0
    return [float(x) for x in out / length] if out.any() else [1.0, *[0.0] * (DIMENSIONS - 1)]
