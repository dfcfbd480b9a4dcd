"""The contracts with their comments, as protoc sees them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodOptions,
)

# Field numbers inside descriptor.proto, of which the paths of comments are made.
_PACKAGE, _MESSAGE, _ENUM, _SERVICE = 2, 4, 5, 6
_METHOD, _FIELD, _ENUM_VALUE = 2, 2, 2

_SCALARS: Final = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}


@dataclass(frozen=True)
class Type:
    """The type of a field: a scalar, or a message or an enum by its full name."""

    name: str
    full_name: str = ""


@dataclass(frozen=True)
class Field:
    """One field. ``label`` is "", "repeated", "optional", "map" or "oneof <name>"."""

    name: str
    number: int
    label: str
    type: Type
    key: str
    comment: str


@dataclass(frozen=True)
class Message:
    """One message."""

    name: str
    full_name: str
    comment: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class EnumValue:
    """One value of an enum."""

    name: str
    number: int
    comment: str


@dataclass(frozen=True)
class Enum:
    """One enum."""

    name: str
    full_name: str
    comment: str
    values: tuple[EnumValue, ...]


@dataclass(frozen=True)
class Rpc:
    """One RPC. ``repeatable`` says what may be sent twice: "reads", "by request_id" or "never"."""

    name: str
    comment: str
    request: str
    response: str
    client_streaming: bool
    server_streaming: bool
    repeatable: str


@dataclass(frozen=True)
class Service:
    """One service."""

    name: str
    comment: str
    rpcs: tuple[Rpc, ...]


@dataclass(frozen=True)
class Contract:
    """One .proto file."""

    package: str
    comment: str
    services: tuple[Service, ...]
    messages: tuple[Message, ...]
    enums: tuple[Enum, ...]

    @property
    def page(self) -> str:
        """The name of its page: embedder, retriever, memory, orchestrator or common."""
        return self.package.split(".")[1]


def read(protos: Path) -> list[Contract]:
    """Every contract under a folder, by package.

    Raises:
        subprocess.CalledProcessError: protoc finds a fault in them.
    """
    files = sorted(str(path) for path in (protos / "nianlun").rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "contracts.bin"
        subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc", "-I", str(protos)),
                *("--include_source_info", f"--descriptor_set_out={out}"),
                *files,
            ],
            check=True,
        )
        described = FileDescriptorSet.FromString(out.read_bytes())
    return sorted((_contract(file) for file in described.file), key=lambda each: each.package)


def _contract(file: FileDescriptorProto) -> Contract:
    comments = _Comments(file)
    return Contract(
        package=file.package,
        comment=comments.at((_PACKAGE,)),
        services=tuple(
            Service(
                name=service.name,
                comment=comments.at((_SERVICE, place)),
                rpcs=tuple(
                    _rpc(method, comments.at((_SERVICE, place, _METHOD, index)))
                    for index, method in enumerate(service.method)
                ),
            )
            for place, service in enumerate(file.service)
        ),
        messages=tuple(_messages(file.package, file.message_type, (_MESSAGE,), comments)),
        enums=tuple(
            _enum(file.package, enum, (_ENUM, index), comments)
            for index, enum in enumerate(file.enum_type)
        ),
    )


class _Comments:
    """Leading comments by path."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._found = {
            tuple(location.path): location.leading_comments
            for location in file.source_code_info.location
        }

    def at(self, path: Sequence[int]) -> str:
        """The comment, its lines joined to paragraphs."""
        text = self._found.get(tuple(path), "")
        paragraphs = text.strip().split("\n\n") if text.strip() else []
        return "\n\n".join(" ".join(part.split()) for part in paragraphs)


def _rpc(method: Any, comment: str) -> Rpc:
    level = MethodOptions.IdempotencyLevel.Name(method.options.idempotency_level)
    repeatable = {"NO_SIDE_EFFECTS": "reads", "IDEMPOTENT": "by request_id"}
    return Rpc(
        name=method.name,
        comment=comment,
        request=method.input_type.lstrip("."),
        response=method.output_type.lstrip("."),
        client_streaming=method.client_streaming,
        server_streaming=method.server_streaming,
        repeatable=repeatable.get(level, "never"),
    )


def _messages(
    scope: str, messages: Sequence[DescriptorProto], path: tuple[int, ...], comments: _Comments
) -> Iterator[Message]:
    for index, message in enumerate(messages):
        here = (*path, index)
        full_name = f"{scope}.{message.name}"
        maps = {
            f"{full_name}.{nested.name}": nested
            for nested in message.nested_type
            if nested.options.map_entry
        }
        yield Message(
            name=message.name,
            full_name=full_name,
            comment=comments.at(here),
            fields=tuple(
                _field(message, field, maps, comments.at((*here, _FIELD, place)))
                for place, field in enumerate(message.field)
            ),
        )


def _field(
    message: DescriptorProto,
    field: FieldDescriptorProto,
    maps: Mapping[str, DescriptorProto],
    comment: str,
) -> Field:
    entry = maps.get(field.type_name.lstrip("."))
    label, key, value = "", "", field
    if entry is not None:
        label, key, value = "map", _SCALARS[entry.field[0].type], entry.field[1]
    elif field.label == FieldDescriptorProto.LABEL_REPEATED:
        label = "repeated"
    elif field.proto3_optional:
        label = "optional"
    elif field.HasField("oneof_index"):
        label = f"oneof {message.oneof_decl[field.oneof_index].name}"
    return Field(field.name, field.number, label, _type(value), key, comment)


def _type(field: FieldDescriptorProto) -> Type:
    if field.type_name:
        full_name = field.type_name.lstrip(".")
        return Type(full_name.rsplit(".", 1)[-1], full_name)
    return Type(_SCALARS[field.type])


def _enum(
    scope: str, enum: EnumDescriptorProto, path: tuple[int, ...], comments: _Comments
) -> Enum:
    return Enum(
        name=enum.name,
        full_name=f"{scope}.{enum.name}",
        comment=comments.at(path),
        values=tuple(
            EnumValue(value.name, value.number, comments.at((*path, _ENUM_VALUE, index)))
            for index, value in enumerate(enum.value)
        ),
    )
