"""Compose files as Docker Compose would see them: overlays merged, variables filled in.

The rules are those of the Compose specification: mappings merge, sequences are joined (entries that
name the same target replace each other), commands and health checks replace, `!reset` removes and
`!override` replaces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
BASE = "docker-compose.yml"
OVERLAYS = tuple(sorted(path.stem for path in (REPOSITORY / "deploy" / "compose").glob("*.yml")))

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")
_REPLACED = ("command", "entrypoint", "test")
_KEYED = ("volumes", "ports", "secrets")


@dataclass(frozen=True)
class _Tagged:
    """A value under `!reset` or `!override`."""

    tag: str
    value: Any


class _Loader(yaml.SafeLoader):
    """Knows the two tags."""


def _tagged(loader: _Loader, suffix: str, node: yaml.Node) -> _Tagged:
    build = {
        yaml.MappingNode: loader.construct_mapping,
        yaml.SequenceNode: loader.construct_sequence,
    }.get(type(node))
    return _Tagged(suffix, build(node, deep=True) if build else None)


_Loader.add_multi_constructor("!", _tagged)


def path(overlay: str) -> Path:
    """Where an overlay lies."""
    return REPOSITORY / "deploy" / "compose" / f"{overlay}.yml"


def load(*overlays: str, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The base file with the overlays on top, extension fields dropped, variables replaced."""
    merged: dict[str, Any] = {}
    for file in (REPOSITORY / BASE, *map(path, overlays)):
        merged = _merge(merged, _read(file))
    kept = {key: value for key, value in merged.items() if not key.startswith("x-")}
    filled: dict[str, Any] = _fill(kept, variables or {})
    return filled


@cache
def _read(file: Path) -> Any:
    return yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a safe loader


def _merge(low: Any, high: Any, key: str = "") -> Any:
    if isinstance(high, _Tagged):
        return _plain(high.value) if high.tag == "override" else None
    if isinstance(low, dict) and isinstance(high, dict):
        out = dict(low)
        for name, value in high.items():
            found = _merge(low.get(name), value, name)
            if found is None and isinstance(value, _Tagged):
                out.pop(name, None)
            else:
                out[name] = found
        return out
    if isinstance(low, list) and isinstance(high, list) and key not in _REPLACED:
        if key in _KEYED:
            taken = {_target(key, entry) for entry in high}
            return [entry for entry in low if _target(key, entry) not in taken] + high
        return low + [entry for entry in high if entry not in low]
    return _plain(high)


def _plain(value: Any) -> Any:
    """A subtree of an overlay alone: what it resets is not there."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if not isinstance(v, _Tagged)}
    return value


def _target(key: str, entry: Any) -> str:
    text = str(entry)
    return text.split(":")[1] if key == "volumes" and ":" in text else text


def _fill(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, variables) for item in value]
    if isinstance(value, str):
        return _VARIABLE.sub(
            lambda m: variables.get(m["name"]) or m["default"] or "", value
        ).replace("$$", "$")
    return value
