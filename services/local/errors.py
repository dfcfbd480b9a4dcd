"""What can keep the local stack from starting, each with what to do about it."""

from __future__ import annotations


class LocalError(Exception):
    """A readable reason why the local stack does not run; the text says what to do."""
