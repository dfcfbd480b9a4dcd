"""Texts of the benchmarks: made from a fixed seed, each different from every other."""

from __future__ import annotations

import random

_WORDS = [
    "memory",
    "retrieval",
    "meeting",
    "project",
    "server",
    "budget",
    "holiday",
    "coffee",
    "garden",
    "travel",
    "doctor",
    "invoice",
    "deadline",
    "release",
    "database",
    "vector",
    "session",
    "profile",
    "question",
    "answer",
    "customer",
    "report",
    "weather",
    "concert",
    "library",
    "kitchen",
    "bicycle",
    "harbour",
    "station",
    "mountain",
    "winter",
    "summer",
    "morning",
]


def short(count: int, seed: int) -> list[str]:
    """About 15 tokens each."""
    return [sentence(12, seed, at) for at in range(count)]


def paragraphs(count: int, seed: int) -> list[str]:
    """About 30 tokens each."""
    return [sentence(24, seed, at) for at in range(count)]


def mixed(count: int, seed: int, longest: int) -> list[str]:
    """8 to `longest` tokens, most of them short, as conversations are."""
    rng = random.Random(seed)
    found = []
    for at in range(count):
        # Log-uniform: as many texts between 8 and 16 tokens as between 256 and 512.
        words = int(8 * (longest / 8) ** rng.random()) - 4
        found.append(sentence(max(words, 3), seed, at))
    return found


def sentence(words: int, seed: int, at: int) -> str:
    """One text of so many words."""
    rng = random.Random(seed * 1_000_003 + at)
    return " ".join([str(at), *(rng.choice(_WORDS) for _ in range(words - 1))])
