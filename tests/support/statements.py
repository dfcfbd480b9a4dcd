"""Every SQL statement of the services, taken from their source.

Statements are string literals, f-strings, or both joined. What stands in braces is evaluated where
it is a name of the module; what only exists while the service runs has to be declared in `HOLES`,
with texts that may stand there. Anything else is an error, so that no statement is passed over.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType

from services.memory.store import episodes
from services.retriever.domain import Condition, Scope
from services.retriever.store import filters

REPOSITORY = Path(__file__).resolve().parents[2]
TABLES = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE|USING)\s+(?:ONLY\s+)?((?:retriever|memory|orchestrator)\.\w+)"
)
_STATEMENT = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|WITH)\s")
_PLACEHOLDER = re.compile(r"%(?:%|[sbt]|\((\w+)\)[sbt])")


def _scopes(alias: str) -> tuple[str, ...]:
    """What a search may be narrowed by: nothing, documents, and every kind of condition."""
    conditions = tuple(
        Condition(key="k", op=op, kind="text", values=("v",))
        for op in ("eq", "ne", "lt", "ge", "in", "exists", "not_exists")
    )
    scope = Scope(collection_id="c", document_ids=("d",), conditions=conditions)
    return ("", "AND " + filters.documents(scope, alias)[0])


# (file, what stands in the braces) -> texts that may stand there. With the name of the function
# before it where two of them mean different things.
HOLES: Mapping[tuple[str, str], Sequence[str]] = {
    ("common/idempotency.py", "{}"): ("memory.requests",),
    ("common/idempotency.py", "{table}"): ("memory.requests",),
    ("memory/store/episodes.py", "{has}"): (episodes._HAS,),
    ("memory/store/erase.py", "{}"): ("memory.users", "md5(user_id)"),
    ("memory/store/transfer.py", "{}"): ("memory.readings", "read_time, document_id"),
    ("memory/store/transfer.py", "{table}"): ("memory.readings",),
    ("memory/store/transfer.py", "{columns}"): ("document_id, read_time",),
    ("memory/store/transfer.py", "{values}"): ("r.document_id, r.read_time",),
    ("orchestrator/store.py", "table"): ("runs", "session_messages", "sessions"),
    ("orchestrator/store.py", "whose"): ("subject", "split_part(subject, '-', 1)"),
    ("retriever/store/collections.py", "table"): ("vectors", "token_vectors", "spaces"),
    ("retriever/store/collections.py", "where"): (
        "c.collection_id = %s",
        "c.collection_id > %s ORDER BY c.collection_id LIMIT %s",
    ),
    ("retriever/store/dense.py", "exact: narrowed"): ("", "AND item = ANY(%s)"),
    ("retriever/store/dense.py", "exact_by_passage: narrowed"): ("", "AND v.item = ANY(%s)"),
    ("retriever/store/dense.py", "{distance}"): ("(embedding::halfvec(2)) <#> %s",),
    ("retriever/store/dense.py", "{tenant}"): ("%(tenant)s",),
    ("retriever/store/dense.py", "{collection}"): ("'c'",),
    ("retriever/store/dense.py", "{model}"): ("'m'",),
    ("retriever/store/documents.py", "'AND ' + where if where else ''"): _scopes("d"),
    ("retriever/store/documents.py", "table"): ("document_metadata", "uploads", "documents"),
    ("retriever/store/hits.py", "'AND ' + where if where else ''"): _scopes("c"),
    ("retriever/store/lexical.py", "table"): ("postings", "segments"),
}
# Parts of statements, which stand in others: (file, where it is).
PARTS = {("memory/store/episodes.py", "_HAS"), ("retriever/store/filters.py", "_condition")}
"""A part is a name of the module or a function whose text is in `HOLES`."""


@dataclass(frozen=True)
class Statement:
    """A statement as PostgreSQL sees it; $1 is the tenant."""

    file: str
    line: int
    sql: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass
class Source:
    """The statements of one module, and literals that name tables but are in none of them."""

    statements: list[Statement] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


@cache
def all_sources() -> tuple[Source, ...]:
    """What every module of the services that names a table says."""
    folder = REPOSITORY / "services"
    files = [f for f in sorted(folder.rglob("*.py")) if "common/jobs" not in f.as_posix()]
    return tuple(_Reader(f.relative_to(folder).as_posix(), f).read() for f in files)


class _Reader:
    def __init__(self, name: str, file: Path) -> None:
        self._name = name
        self._tree = ast.parse(file.read_text(encoding="utf-8"))
        self._seen: set[ast.AST] = set()
        self._source = Source()
        self._where = ""

    def read(self) -> Source:
        literals = [n for n in ast.walk(self._tree) if isinstance(n, ast.Constant)]
        spoken = [n for n in literals if isinstance(n.value, str)]
        if any(TABLES.search(n.value) or _STATEMENT.match(n.value) for n in spoken):
            for where, node in _texts(self._tree, ""):
                if (self._name, where) in PARTS:
                    self._seen.update(ast.walk(node))
                else:
                    self._where = where
                    self._take(node)
        self._source.left = [
            f"{self._name}:{n.lineno}: {n.value.strip()[:60]}"
            for n in spoken
            if n not in self._seen and TABLES.search(n.value)
        ]
        return self._source

    @property
    def _module(self) -> ModuleType:
        dotted = self._name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return importlib.import_module(f"services.{dotted}")

    def _take(self, node: ast.expr) -> None:
        if not _STATEMENT.match(_start(node)):
            return
        self._seen.update(ast.walk(node))
        for text in self._rendered(node):
            if _STATEMENT.match(text):
                for whole in self._filled(text):
                    self._source.statements.append(
                        Statement(self._name, node.lineno, numbered(whole))
                    )

    def _rendered(self, node: ast.expr) -> list[str]:
        """All texts that a string expression may have."""
        if isinstance(node, ast.Constant):
            return [str(node.value)]
        if isinstance(node, ast.JoinedStr):
            parts = [self._rendered(v) for v in node.values]
            return ["".join(p) for p in itertools.product(*parts)]
        if isinstance(node, ast.BinOp):
            parts = [self._rendered(node.left), self._rendered(node.right)]
            return ["".join(p) for p in itertools.product(*parts)]
        value = node.value if isinstance(node, ast.FormattedValue) else node
        braces = ast.unparse(value)
        here = (self._name, f"{self._where}: {braces}")
        hole = HOLES.get(here, HOLES.get((self._name, braces)))
        if hole is not None:
            return list(hole)
        if isinstance(value, ast.IfExp):
            return [*self._rendered(value.body), *self._rendered(value.orelse)]
        if isinstance(value, ast.Name) and hasattr(self._module, value.id):
            self._mark(value.id)
            return [str(getattr(self._module, value.id))]
        raise LookupError(f"{self._name}:{node.lineno}: declare what {ast.unparse(value)} may be")

    def _mark(self, name: str) -> None:
        """The literals of a name of the module stand in a statement."""
        for node in self._tree.body:
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                self._seen.update(ast.walk(node))

    def _filled(self, text: str) -> list[str]:
        """The text with what `format` puts in."""
        for brace in dict.fromkeys(re.findall(r"(?<!')\{\w*\}(?!')", text)):
            hole = HOLES.get((self._name, brace))
            if hole is None:
                raise LookupError(f"{self._name}: declare what {brace} may be in: {text[:80]}")
            if brace == "{}":
                for part in hole:
                    text = text.replace(brace, part, 1)
            else:
                text = text.replace(brace, hole[0])
        return [text]


def _texts(node: ast.AST, where: str) -> Iterator[tuple[str, ast.expr]]:
    """String expressions that are not part of a longer one, and the name of what they are in."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        where = node.name
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and not where:
        where = node.targets[0].id
    if isinstance(node, ast.JoinedStr | ast.BinOp) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    ):
        if _start(node):
            yield where, node
        return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, where)


def _start(node: ast.expr) -> str:
    """How a string expression begins; '' for an expression of numbers."""
    if isinstance(node, ast.BinOp):
        return _start(node.left) if isinstance(node.op, ast.Add) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_start(v) if isinstance(v, ast.Constant) else "{}" for v in node.values)
    if isinstance(node, ast.Name):
        return "SELECT " if node.id.endswith("_SQL") else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def numbered(text: str) -> str:
    """The statement with $1 for the tenant and further numbers for the other parameters."""
    numbers = {"tenant": 1}
    count = itertools.count(2)

    def number(match: re.Match[str]) -> str:
        if match.group() == "%%":
            return "%"
        name = match[1]
        if name is None:
            return f"${next(count)}"
        if name not in numbers:
            numbers[name] = next(count)
        return f"${numbers[name]}"

    return _PLACEHOLDER.sub(number, text)
