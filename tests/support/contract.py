"""The contract as data: services, methods and messages, read from the generated stubs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import (
    Descriptor,
    EnumDescriptor,
    FieldDescriptor,
    FileDescriptor,
    MethodDescriptor,
)

from nianlun.common.v1 import common_pb2
from nianlun.embedder.v1 import embedder_pb2
from nianlun.memory.v1 import memory_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2
from nianlun.retriever.v1 import retriever_pb2

MODULES = {
    "embedder": embedder_pb2,
    "retriever": retriever_pb2,
    "memory": memory_pb2,
    "orchestrator": orchestrator_pb2,
}
FILES: tuple[FileDescriptor, ...] = (
    common_pb2.DESCRIPTOR,
    *(module.DESCRIPTOR for module in MODULES.values()),
)


@dataclass(frozen=True)
class Rpc:
    """One method. `name` is "memory.AppendTurn"; `path` what travels on the wire."""

    service: str
    method: MethodDescriptor

    @property
    def name(self) -> str:
        return f"{self.service}.{self.method.name}"

    @property
    def path(self) -> str:
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @property
    def read_only(self) -> bool:
        level = self.method.GetOptions().idempotency_level
        return level == descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS


def _rpcs() -> Iterator[Rpc]:
    for service, module in MODULES.items():
        for descriptor in module.DESCRIPTOR.services_by_name.values():
            for method in descriptor.methods:
                yield Rpc(service, method)


RPCS: tuple[Rpc, ...] = tuple(_rpcs())
BY_NAME: dict[str, Rpc] = {rpc.name: rpc for rpc in RPCS}


def messages() -> Iterator[Descriptor]:
    """Every message of the contract, nested ones included, map entries left out."""

    def nested(message: Descriptor) -> Iterator[Descriptor]:
        if not message.GetOptions().map_entry:
            yield message
            for inner in message.nested_types:
                yield from nested(inner)

    for file in FILES:
        for message in file.message_types_by_name.values():
            yield from nested(message)


def enums() -> Iterator[EnumDescriptor]:
    """Every enum of the contract."""
    for file in FILES:
        yield from file.enum_types_by_name.values()
    for message in messages():
        yield from message.enum_types


def field(message: Descriptor, name: str) -> FieldDescriptor | None:
    """The field of that name, or None."""
    found: FieldDescriptor | None = message.fields_by_name.get(name)
    return found


def request_class(rpc: Rpc) -> type:
    """The Python class of the request message."""
    found: type = rpc.method.input_type._concrete_class
    return found


def response_class(rpc: Rpc) -> type:
    """The Python class of the response message."""
    found: type = rpc.method.output_type._concrete_class
    return found
