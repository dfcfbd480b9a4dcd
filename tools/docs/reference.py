"""The API reference as Markdown: one page a service, one for the types they share."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.docs import contracts
from tools.docs.contracts import Contract, Enum, Field, Message, Rpc, Service, Type

_INTRODUCTION: Final = (
    "Made from the comments of `protos/`: what each RPC, message and field means, its bounds and"
    " its errors. Reasons of errors, and what to do about each, stand in [Errors](../errors.md)."
)


def pages(protos: Path) -> dict[str, str]:
    """Path below `reference/` and text of each page."""
    found = contracts.read(protos)
    linker = _Linker(found)
    made = {f"{each.page}.md": _page(each, linker) for each in found}
    return {"index.md": _index(found)} | made


class _Linker:
    """Knows on which page each type stands."""

    def __init__(self, found: Sequence[Contract]) -> None:
        self._pages: dict[str, str] = {}
        for contract in found:
            names = [each.full_name for each in contract.messages]
            names += [each.full_name for each in contract.enums]
            self._pages |= dict.fromkeys(names, contract.page)

    def link(self, kind: Type, page: str) -> str:
        """A type as a link, from a page."""
        where = self._pages.get(kind.full_name)
        if where is None:
            return f"`{kind.full_name or kind.name}`"
        file = "" if where == page else f"{where}.md"
        return f"[{kind.name}]({file}#{anchor(kind.name)})"


def anchor(name: str) -> str:
    """The id of a type's heading."""
    return f"type-{name.lower()}"


def _index(found: Sequence[Contract]) -> str:
    lines = [
        "# API reference",
        "",
        _INTRODUCTION,
        "",
        "| service | RPCs | what for |",
        "|---|---|---|",
    ]
    for contract in found:
        for service in contract.services:
            first = service.comment.split("\n\n")[0]
            lines.append(
                f"| [{service.name}]({contract.page}.md) | {len(service.rpcs)} | {_cell(first)} |"
            )
    lines += ["", "The types that all services share: [common](common.md).", ""]
    return "\n".join(lines)


def _page(contract: Contract, linker: _Linker) -> str:
    title = contract.services[0].name if contract.services else "Common types"
    parts = [f"# {title}", f"Package `{contract.package}`.", _text(contract.comment)]
    shown: set[str] = set()
    messages = {each.full_name: each for each in contract.messages}
    for service in contract.services:
        parts += [_text(service.comment), *_overview(service)]
        for rpc in service.rpcs:
            parts += _rpc(rpc, messages, linker, contract.page)
            shown |= {rpc.request, rpc.response}
    others = [each for each in contract.messages if each.full_name not in shown]
    if others:
        parts.append("## Messages")
        for message in others:
            parts += [f"### {message.name} {{ #{anchor(message.name)} }}", _text(message.comment)]
            parts.append(_fields(message, linker, contract.page))
    if contract.enums:
        parts.append("## Enums")
        for enum in contract.enums:
            parts += [f"### {enum.name} {{ #{anchor(enum.name)} }}", _text(enum.comment)]
            parts.append(_values(enum))
    return "\n\n".join(part for part in parts if part) + "\n"


def _overview(service: Service) -> Iterator[str]:
    rows = ["| RPC | kind | repeatable |", "|---|---|---|"]
    rows += [
        f"| [{rpc.name}](#{rpc.name.lower()}) | {_kind(rpc)} | {rpc.repeatable} |"
        for rpc in service.rpcs
    ]
    yield "\n".join(rows)


def _rpc(rpc: Rpc, messages: dict[str, Message], linker: _Linker, page: str) -> Iterator[str]:
    yield f"## {rpc.name} {{ #{rpc.name.lower()} }}"
    yield f"*{_kind(rpc)}; repeatable: {rpc.repeatable}*"
    yield _text(rpc.comment)
    for word, full_name in (("Request", rpc.request), ("Response", rpc.response)):
        message = messages[full_name]
        stream = rpc.client_streaming if word == "Request" else rpc.server_streaming
        yield f"### {message.name} {{ #{anchor(message.name)} }}"
        yield ("A stream of these. " if stream else "") + _text(message.comment)
        yield _fields(message, linker, page)


def _kind(rpc: Rpc) -> str:
    if rpc.server_streaming:
        return "server stream"
    return "client stream" if rpc.client_streaming else "unary"


def _fields(message: Message, linker: _Linker, page: str) -> str:
    if not message.fields:
        return "No fields."
    rows = ["| field | type | what, and its bounds |", "|---|---|---|"]
    rows += [
        f"| `{field.name}` | {_field_type(field, linker, page)} | {_cell(field.comment)} |"
        for field in message.fields
    ]
    return "\n".join(rows)


def _field_type(field: Field, linker: _Linker, page: str) -> str:
    kind = linker.link(field.type, page)
    if field.label == "map":
        return f"map of `{field.key}` to {kind}"
    return f"{field.label} {kind}".strip()


def _values(enum: Enum) -> str:
    rows = ["| value | number | meaning |", "|---|---|---|"]
    rows += [f"| `{each.name}` | {each.number} | {_cell(each.comment)} |" for each in enum.values]
    return "\n".join(rows)


def _text(comment: str) -> str:
    return html.escape(comment, quote=False)


def _cell(comment: str) -> str:
    return _text(" ".join(comment.split())).replace("|", "\\|")
