"""Safety of stored text: personal data out, instructions recognised, own blocks not mined."""

from services.common import pii
from services.common.pii import Redaction, redact
from services.memory.safety.followable import may_be_followed
from services.memory.safety.injection import is_injection
from services.memory.safety.mineable import mineable
from services.memory.safety.sensitive import is_sensitive

__all__ = [
    "Redaction",
    "is_injection",
    "is_sensitive",
    "may_be_followed",
    "mineable",
    "pii",
    "redact",
]
