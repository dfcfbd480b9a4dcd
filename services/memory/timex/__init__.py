"""Time expressions of both languages, resolved against the time something was said."""

from services.memory.timex.resolve import resolve, zone_of
from services.memory.timex.spans import Span

__all__ = ["Span", "resolve", "zone_of"]
