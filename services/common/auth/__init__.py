"""Who may call: keys, their verification with a short cache, and the owner's administration."""

from services.common.auth.verifier import KeyVerifier, VerifiedKey

__all__ = ["KeyVerifier", "VerifiedKey"]
