"""What a statement does to tables that are spread over servers by tenant, read from its syntax tree
as PostgreSQL's own parser makes it (pglast).

The rules are those of Citus for statements on distributed tables, of its planner
(multi_router_planner.c, insert_select_planner.c).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
from pglast import ast, parse_sql

SCHEMAS = ["retriever", "memory", "orchestrator"]
LOCAL = "jobs"
"""The one table of tenants that stays on the coordinator, beside the queue."""

Volatility = Callable[[str], str]
"""Name of a function -> "i" (immutable), "s" (stable) or "v" (volatile)."""

_TENANTS = ("v_tenant", "p_tenant")
"""How functions call the tenant."""
_SYSTEM_COLUMNS = {"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}


@dataclass(frozen=True)
class Rules:
    """`tables`: the distributed ones, as schema.table."""

    tables: frozenset[str]
    volatility: Volatility


def rules_of(conn: psycopg.Connection[dict[str, Any]]) -> Rules:
    """The rules for a migrated database. The connection has to stay open."""
    found = conn.execute(
        "SELECT format('%%I.%%I', n.nspname, c.relname) AS name FROM pg_class AS c"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = ANY(%s) AND c.relkind = 'r' AND c.relname <> %s",
        (SCHEMAS, LOCAL),
    ).fetchall()

    @cache
    def volatility(name: str) -> str:
        schema, _, function = name.rpartition(".")
        row = conn.execute(
            "SELECT string_agg(DISTINCT p.provolatile::text, '') AS found FROM pg_proc AS p"
            " JOIN pg_namespace AS n ON n.oid = p.pronamespace"
            " WHERE p.proname = %s AND n.nspname = coalesce(nullif(%s, ''), 'pg_catalog')",
            (function, schema),
        ).fetchone()
        if row is None or not row["found"]:
            raise LookupError(f"there is no function {name}")
        return next(kind for kind in "vsi" if kind in row["found"])

    return Rules(frozenset(row["name"] for row in found), volatility)


def faults(sql: str, rules: Rules) -> list[str]:
    """What is wrong with a statement, in words."""
    found: list[str] = []
    for raw in parse_sql(sql):
        if not any(_distributed(node, rules) for node in _walk(raw.stmt)):
            continue
        for node in _walk(raw.stmt):
            if isinstance(node, ast.SelectStmt):
                found += _unnamed(node, rules, node.fromClause or (), node.whereClause)
            elif isinstance(node, ast.DeleteStmt):
                sources = (node.relation, *(node.usingClause or ()))
                found += _unnamed(node, rules, sources, node.whereClause)
                found += _modification(node, rules)
            elif isinstance(node, ast.UpdateStmt):
                sources = (node.relation, *(node.fromClause or ()))
                found += _unnamed(node, rules, sources, node.whereClause)
                found += _modification(node, rules)
            elif isinstance(node, ast.InsertStmt):
                found += _insert(node, rules)
    return found


def tables(sql: str) -> set[str]:
    """All tables with a schema that a statement names."""
    nodes = (node for raw in parse_sql(sql) for node in _walk(raw.stmt))
    return {
        f"{n.schemaname}.{n.relname}" for n in nodes if isinstance(n, ast.RangeVar) and n.schemaname
    }


def _distributed(node: Any, rules: Rules) -> bool:
    return isinstance(node, ast.RangeVar) and f"{node.schemaname}.{node.relname}" in rules.tables


def _walk(node: Any, into: Callable[[Any], bool] = lambda _: True) -> Iterator[Any]:
    """A node and all below it; not below those for which `into` is false."""
    if isinstance(node, tuple):
        for item in node:
            yield from _walk(item, into)
    elif isinstance(node, ast.Node):
        yield node
        if into(node):
            for name in node:
                yield from _walk(getattr(node, name), into)


# ---- every table has its tenant ----------------------------------------------------------------


def _unnamed(node: Any, rules: Rules, sources: tuple[Any, ...], where: Any) -> list[str]:
    """Tables of one level of a statement without `tenant_id = $1` of their own."""
    relations: list[ast.RangeVar] = []
    conditions = _conjuncts(where)
    waiting = list(sources)
    while waiting:
        source = waiting.pop()
        if isinstance(source, ast.JoinExpr):
            waiting += [source.larg, source.rarg]
            conditions += _conjuncts(source.quals)
        elif isinstance(source, ast.RangeVar):
            relations.append(source)
    named = {_tenant_of(condition) for condition in conditions}
    if len(relations) == 1 and "" in named:
        return []
    return [
        f"{r.schemaname}.{r.relname} without its tenant"
        for r in relations
        if _distributed(r, rules) and (r.alias.aliasname if r.alias else r.relname) not in named
    ]


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, ast.BoolExpr) and condition.boolop.name == "AND_EXPR":
        return [part for one in condition.args for part in _conjuncts(one)]
    return [] if condition is None else [condition]


def _tenant_of(condition: Any) -> str | None:
    """The alias in `alias.tenant_id = $1`, '' where there is none; None for other conditions."""
    if not isinstance(condition, ast.A_Expr) or condition.name[-1].sval != "=":
        return None
    left, right = condition.lexpr, condition.rexpr
    if not isinstance(left, ast.ColumnRef) or _column(left) != "tenant_id" or not _is_tenant(right):
        return None
    return left.fields[0].sval if len(left.fields) > 1 else ""


def _is_tenant(value: Any) -> bool:
    if isinstance(value, ast.ColumnRef):
        return _column(value) in _TENANTS
    return isinstance(value, ast.ParamRef) and value.number == 1


def _column(reference: ast.ColumnRef) -> str:
    last = reference.fields[-1]
    return last.sval if isinstance(last, ast.String) else "*"


# ---- insertions --------------------------------------------------------------------------------


def _insert(node: ast.InsertStmt, rules: Rules) -> list[str]:
    if not _distributed(node.relation, rules):
        return []
    table = f"{node.relation.schemaname}.{node.relation.relname}"
    names = [column.name for column in node.cols or ()]
    if "tenant_id" not in names:
        return [f"{table}: tenant_id is not among the columns"]
    place = names.index("tenant_id")
    select = node.selectStmt
    found = []
    if select.valuesLists:
        given = [row[place] for row in select.valuesLists]
    else:
        given = [select.targetList[place].val]
        if node.onConflictClause is None and not node.returningClause:
            found.append(f"{table}: INSERT ... SELECT may be a COPY")
    if not all(
        _is_tenant(v) or (isinstance(v, ast.ColumnRef) and _column(v) == "tenant_id") for v in given
    ):
        found.append(f"{table}: tenant_id is not that of the transaction")
    conflict = node.onConflictClause
    if conflict is not None:
        changed = _mutable((conflict.targetList, conflict.whereClause), rules)
        found += [f"{table}: {name} in ON CONFLICT" for name in changed]
    return found + _returned(node, rules)


# ---- changes -----------------------------------------------------------------------------------


def _modification(node: Any, rules: Rules) -> list[str]:
    if not _distributed(node.relation, rules):
        return []
    found = [f"{name} is volatile" for name in _functions(node) if rules.volatility(name) == "v"]
    changing = (getattr(node, "targetList", None), node.whereClause)
    for part in _walk(changing):
        if isinstance(part, ast.CoalesceExpr | ast.CaseExpr):
            found += [f"{name} in CASE or COALESCE" for name in _mutable(part, rules)]
        elif isinstance(part, ast.FuncCall) and _of_a_column(part) and _mutable(part, rules):
            found.append(f"{_name(part)} is not immutable and has a column as argument")
    return found + _returned(node, rules)


def _of_a_column(call: ast.FuncCall) -> bool:
    """Whether a function is called with a column; in functions, variables look like one."""
    columns = (n for n in _walk(call.args or ()) if isinstance(n, ast.ColumnRef))
    return any(not _column(column).startswith(("v_", "p_")) for column in columns)


def _returned(node: Any, rules: Rules) -> list[str]:
    """What may not be returned: values that depend on a server's settings, and its own columns."""
    returned = getattr(node, "returningClause", None)
    exprs = returned.exprs if returned is not None else ()
    found = [f"{name} in RETURNING" for name in _mutable(exprs, rules)]
    for part in _walk(exprs):
        if isinstance(part, ast.ColumnRef) and _column(part) in _SYSTEM_COLUMNS:
            found.append(f"system column {_column(part)} in RETURNING")
        if isinstance(part, ast.A_Expr) and part.name[-1].sval == "||":
            # Of a text and something else this is a stable function.
            found += [
                f"|| with {type(side).__name__} that is not cast to text in RETURNING"
                for side in (part.lexpr, part.rexpr)
                if not _is_text(side)
            ]
    return found


_TEXT_COLUMNS = {"kind", "model_id"}


def _is_text(node: Any) -> bool:
    if isinstance(node, ast.TypeCast):
        return bool(node.typeName.names[-1].sval == "text")
    if isinstance(node, ast.FuncCall):
        return _name(node) == "md5"
    if isinstance(node, ast.A_Expr):
        return bool(node.name[-1].sval == "||")
    return isinstance(node, ast.A_Const) or (
        isinstance(node, ast.ColumnRef) and _column(node) in _TEXT_COLUMNS
    )


def _mutable(node: Any, rules: Rules) -> list[str]:
    """Functions that are not immutable, and CURRENT_TIMESTAMP and its like."""
    names = [name for name in _functions(node) if rules.volatility(name) != "i"]
    return names + [type(n).__name__ for n in _walk(node) if isinstance(n, ast.SQLValueFunction)]


def _functions(node: Any) -> list[str]:
    return [_name(n) for n in _walk(node) if isinstance(n, ast.FuncCall)]


def _name(call: ast.FuncCall) -> str:
    return ".".join(part.sval for part in call.funcname)
