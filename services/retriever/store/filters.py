"""Scopes as SQL: which documents, by id and by typed metadata."""

from __future__ import annotations

from typing import Final

from services.retriever.domain import Condition, Scope
from services.retriever.store.sqltools import TENANT

_COLUMN: Final = {
    "text": "text_value",
    "number": "number_value",
    "bool": "bool_value",
    "time": "time_value",
}
_COMPARE: Final = {"eq": "=", "ne": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# `left` keeps the order of strings, but not strictly: the index narrows, the full value decides.
_LOOSE: Final = {"<": "<=", ">": ">="}


def documents(scope: Scope, alias: str) -> tuple[str, list[object]]:
    """An SQL condition on `alias`.document_id for the scope, and its parameters.

    "" for a whole collection. The caller has fixed tenant and collection of `alias` already.
    """
    parts: list[str] = []
    params: list[object] = []
    if scope.document_ids:
        parts.append(f"{alias}.document_id = ANY(%s)")
        params.append(list(scope.document_ids))
    for condition in scope.conditions:
        sql, values = _condition(condition, alias, scope.collection_id)
        parts.append(sql)
        params.extend(values)
    return " AND ".join(parts), params


def _condition(condition: Condition, alias: str, collection: str) -> tuple[str, list[object]]:
    negated = condition.op in ("ne", "not_exists")
    test, values = _test(condition)
    sql = f"""{alias}.document_id {"NOT IN" if negated else "IN"} (
        SELECT m.document_id FROM retriever.document_metadata AS m
        WHERE m.tenant_id = {TENANT} AND m.collection_id = %s AND m.key = %s{test})"""
    return sql, [collection, condition.key, *values]


def _test(condition: Condition) -> tuple[str, list[object]]:
    if condition.op in ("exists", "not_exists"):
        return "", []
    column = _COLUMN[condition.kind]
    if condition.op == "in":
        if condition.kind == "text":
            heads = [str(v)[:100] for v in condition.values]
            return (
                f" AND left(m.{column}, 100) = ANY(%s) AND m.{column} = ANY(%s)",
                [heads, list(condition.values)],
            )
        return f" AND m.{column} = ANY(%s)", [list(condition.values)]
    compare = _COMPARE[condition.op]
    value = condition.values[0]
    if condition.kind == "text":
        loose = _LOOSE.get(compare, compare)
        return (
            f" AND left(m.{column}, 100) {loose} %s AND m.{column} {compare} %s",
            [str(value)[:100], value],
        )
    return f" AND m.{column} {compare} %s", [value]
