"""Lines of an export, one of each type, as the service writes them."""

from __future__ import annotations

import json
from typing import Any

AT = "2024-03-05T01:00:00.25+00:00"
ID = "3f2b8c1e-0000-4000-8000-00000000000a"
OTHER = "3f2b8c1e-0000-4000-8000-00000000000b"
SOURCE = {"turn_id": OTHER, "session_id": "s1", "quote": "I like tea", "event_time": AT}
LINES: dict[str, dict[str, Any]] = {
    "sessions": {
        "session_id": "s1", "turns": 3, "start_time": AT, "last_time": AT, "end_time": None,
    },
    "turns": {
        "turn_id": ID, "session_id": "s1", "sequence": 2, "event_time": AT, "create_time": AT,
        "time_zone": "Asia/Shanghai", "flags": ["pii:cn_id"], "digest_state": "fresh",
        "messages": [{"role": "user", "text": "I like tea", "speaker": "Ann"},
                     {"role": "assistant", "text": "Noted."}],
        "metadata": {"n": 3, "x": 1.5, "b": True, "l": ["a"], "t": {"$timestamp": AT}},
    },
    "facts": {
        "fact_id": ID, "kind": "fact", "attribute": "likes", "value": "Tea", "value_key": "tea",
        "statement": "The user likes Tea", "cardinality": "many", "state": "active",
        "valid_from": AT, "valid_to": None, "recorded_from": AT, "recorded_to": None,
        "closed_at": None, "origin": "rules", "language": "en", "etag": "0a1b",
    },
    "fact_sources": {"fact_id": ID, **SOURCE},
    "episodes": {
        "episode_id": ID, "session_id": "s1", "note": "The user likes tea", "event_time": AT,
        "note_key": "=userlikestea", "about_from": AT, "about_to": None, "origin": "llm",
        "language": "en", "etag": "0a1b", "create_time": AT,
    },
    "episode_sources": {"episode_id": ID, **SOURCE},
    "summaries": {
        "session_id": "", "version": 2, "text": "They talk about tea.", "covered_turns": 3,
        "covered_until": 3, "from_time": AT, "to_time": AT, "origin": "rules", "create_time": AT,
    },
    "readings": {
        "document_id": "d1", "reading_id": ID, "title": "A paper", "summary": "About tea.",
        "metadata": {}, "first_read_time": AT, "read_time": AT, "times": 1, "weight": 1,
    },
}  # fmt: skip


def line(kind: str, /, **changes: Any) -> str:
    """One line of an export with some values changed."""
    return json.dumps({"type": kind, **LINES[kind], **changes})
