"""The form of a key: ``nl_`` and 43 URL-safe characters (256 random bits); its hash is stored."""

from __future__ import annotations

import hashlib
import re
import secrets

SCOPES = frozenset({"read", "write", "admin", "service"})
SERVICE_TENANT = "nianlun:service"
"""Owner of the keys of scope service; no data ever belongs to it."""

_KEY = re.compile(r"nl_[A-Za-z0-9_-]{43}")


def generate() -> str:
    """A new random key."""
    return "nl_" + secrets.token_urlsafe(32)


def well_formed(key: str) -> bool:
    """True where ``key`` has the form of a key; says nothing of whether it is known."""
    return _KEY.fullmatch(key) is not None


def digest(key: str) -> bytes:
    """The 32 bytes under which a key is stored. A plain hash does: the key itself is random."""
    return hashlib.sha256(key.encode()).digest()
