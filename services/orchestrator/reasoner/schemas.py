"""JSON Schemas that callers bring: checked when they come, and values judged by them.

A schema can cost far more than it is long: a pattern that backtracks, references that double or
never end, unique items. Those are judged in a process of their own that has a few seconds; the
event loop never waits for them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import jsonschema
from referencing import Registry
from referencing.exceptions import Unresolvable

_MAX_ERRORS: Final = 5
_CPU_S: Final = 2
_WALL_S: Final = 6.0
_REFERENCES: Final = frozenset(("$ref", "$dynamicRef"))
# What may take more than the product of the sizes of schema and value.
_COSTLY: Final = _REFERENCES | {
    "pattern",
    "patternProperties",
    "uniqueItems",
    "unevaluatedItems",
    "unevaluatedProperties",
}


def check_schema(schema: Mapping[str, Any]) -> str | None:
    """None for a usable JSON Schema, else what is wrong. References outside the schema, references
    to nothing and patterns that are none are refused.
    """
    try:
        jsonschema.Draft202012Validator.check_schema(dict(schema))
    except jsonschema.SchemaError as error:
        return f"is no JSON Schema: {error.message[:200]}"
    named = any(key in ("$id", "$anchor", "$dynamicAnchor") for key, _ in _pairs(schema))
    for key, value in _pairs(schema):
        if key in _REFERENCES and isinstance(value, str):
            if not value.startswith("#"):
                return "must not refer to other documents"
            if not named and not _points_somewhere(schema, value[1:]):
                return f"refers to what it does not have: {value[:100]}"
        patterns = [value] if key == "pattern" else value if key == "patternProperties" else []
        for pattern in patterns if isinstance(patterns, list | Mapping) else []:
            if isinstance(pattern, str) and not _compiles(pattern):
                return f"has a pattern that is none: {pattern[:100]}"
    return None


def validate(value: Any, schema: Mapping[str, Any]) -> tuple[str, ...]:
    """What is wrong with `value`, at most five lines; empty when nothing is. Only for schemas of
    our own: it takes as long as it takes."""
    validator = jsonschema.Draft202012Validator(dict(schema), registry=Registry())
    try:
        first = list(islice(validator.iter_errors(value), _MAX_ERRORS))
    except RecursionError:
        return ("(root): the schema refers to itself without end",)
    except (Unresolvable, re.error) as error:
        return (f"(root): the schema cannot be used: {str(error)[:200]}",)
    return tuple(f"{_where(error)}: {error.message[:200]}" for error in first)


async def problems(values: Sequence[Any], schema: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """`validate` for each value, up to the first that is right; of any schema, in bounded time."""
    if not any(key in _COSTLY for key, _ in _pairs(schema)):
        return list(_judged(values, schema))
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    asked = json.dumps({"values": list(values), "schema": schema}).encode()
    try:
        async with asyncio.timeout(_WALL_S):
            told, _ = await child.communicate(asked)
    except TimeoutError:
        told = b""
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        return [("(root): the schema takes too long to check",)] * len(values)
    return [tuple(found) for found in json.loads(told)]


def _judged(values: Sequence[Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for value in values:
        found = validate(value, schema)
        yield found
        if not found:
            return


def _where(error: Any) -> str:
    return "/".join(str(part) for part in error.absolute_path) or "(root)"


def _pairs(node: Any) -> Iterator[tuple[str, Any]]:
    """Every key of every object in it, with its value."""
    left = [node]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            yield from one.items()
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)


def _points_somewhere(schema: Any, pointer: str) -> bool:
    node = schema
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key[:9]) < len(node):
            node = node[int(key[:9])]
        else:
            return False
    return pointer == "" or pointer.startswith("/")


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def main() -> None:
    """The process of its own: a question on stdin, the findings on stdout."""
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    asked = json.load(sys.stdin)
    json.dump(list(_judged(asked["values"], asked["schema"])), sys.stdout)


if __name__ == "__main__":
    main()
