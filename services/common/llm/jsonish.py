"""JSON as models write it: in prose, in fences, cut off, with lone surrogates.

The object is found and repaired; what cannot be read raises, so that nobody takes silence for
success.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import json_repair

_FENCE: Final = re.compile(r"```(?:json|JSON)?\s*\n?(.*?)(?:```|\Z)", re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MAX_STARTS: Final = 64


class JsonUnusable(ValueError):
    """No object with the wanted key could be read. The message holds no model text."""


def clean(value: Any) -> Any:
    """`value` with lone surrogates replaced by U+FFFD and NUL removed, at every depth."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value).replace("\x00", "")
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {str(clean(key)): clean(item) for key, item in value.items()}
    return value


def parse_objects(text: str, key: str) -> list[dict[str, Any]]:
    """The objects of a bare list whose first one holds `key`. Raises JsonUnusable otherwise."""
    value = next((v for v in map(_strict, _lists(text)) if v), None)
    if not isinstance(value, list) or not isinstance(value[0], dict) or key not in value[0]:
        raise JsonUnusable(f"no list of objects with {key!r} in the answer")
    return [clean(item) for item in value if isinstance(item, dict)]


def _lists(text: str) -> Iterator[str]:
    for match in _FENCE.finditer(text):
        yield match.group(1)
    for match in re.finditer(r"\[(?=\s*\{)", text):
        yield text[match.start() :]
        return


def _starts(text: str) -> Iterator[str]:
    for match in _FENCE.finditer(text):
        yield match.group(1)
    for at in [m.start() for m in re.finditer(r"\{", text)][:_MAX_STARTS]:
        yield text[at:]


def _strict(text: str) -> Any:
    try:
        # raw_decode stops at the end of the first value: prose after it does no harm.
        return json.JSONDecoder(strict=False).raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return None


def parse_object(text: str, key: str) -> dict[str, Any]:
    """The first object of `text` that holds `key`, repaired if need be.

    Exact JSON anywhere in the text wins over repaired JSON. Raises JsonUnusable when there is none.
    """
    for piece in _starts(text):
        value = _strict(piece)
        if isinstance(value, dict) and key in value:
            cleaned: dict[str, Any] = clean(value)
            return cleaned
    for piece in _starts(text):
        if f'"{key}"' not in piece and f"'{key}'" not in piece and key not in piece:
            continue
        try:
            value = json_repair.loads(piece)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and key in value:
            repaired: dict[str, Any] = clean(value)
            return repaired
    raise JsonUnusable(f"no JSON object with {key!r} in the answer of {len(text)} characters")
