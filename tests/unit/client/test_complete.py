"""The clients cover the whole contract: every RPC has a method, every field a parameter."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor

from nianlun import AsyncClient, Client, chat_input, document
from nianlun.embedder.v1 import embedder_pb2
from nianlun.memory.v1 import memory_pb2
from nianlun.methods import Bound
from nianlun.operations import background
from nianlun.operations.core import Operation
from nianlun.orchestrator.v1 import orchestrator_pb2
from nianlun.retriever.v1 import retriever_pb2
from nianlun.transport import SERVICES

# Streams are methods of their own, not operations.
STREAMS = {
    ("memory", "ExportUser"): "export_user",
    ("memory", "ImportUser"): "import_user",
    ("memory", "WatchJob"): "watch_memory_job",
    ("retriever", "WatchJob"): "watch_retriever_job",
    ("orchestrator", "StreamChat"): "stream_chat",
}
# Fields of requests that have another name, or are several arguments, in Python.
OTHERWISE = {
    ("Search", "scopes"): {"collection_id", "document_ids", "filter", "more_scopes"},
    ("Embed", "input_type"): {"query"},
    ("Chat", "input"): {"asked"},
    ("BuildContext", "input"): {"asked"},
    ("SubmitFeedback", "feedback"): {"useful", "reading_id", "comment"},
    ("RecordReadingFeedback", "verdict"): {"useful"},
}


def _rpcs() -> Iterator[tuple[str, MethodDescriptor]]:
    for service in SERVICES:
        module = importlib.import_module(f"nianlun.{service}.v1.{service}_pb2")
        for described in module.DESCRIPTOR.services_by_name.values():
            for method in described.methods:
                yield service, method


def _operations(client: type) -> list[tuple[str, Operation[..., Any]]]:
    members = inspect.getmembers_static(client)
    return [(name, each.operation) for name, each in members if isinstance(each, Bound)]


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_every_rpc_has_a_method(client: type) -> None:
    covered = {(each.service, each.rpc) for _name, each in _operations(client)}
    covered |= {rpc for rpc, name in STREAMS.items() if callable(getattr(client, name, None))}
    assert covered == {(service, method.name) for service, method in _rpcs()}


def test_every_field_of_a_request_can_be_set() -> None:
    methods = {(service, method.name): method for service, method in _rpcs()}
    missing = []
    for name, each in _operations(Client):
        parameters = set(inspect.signature(each.build).parameters)
        for field in methods[each.service, each.rpc].input_type.fields:
            wanted = OTHERWISE.get((each.rpc, field.name), {field.name})
            if field.GetOptions().deprecated:
                continue
            if not wanted <= parameters:
                missing.append(f"{name}: {field.name}")
    assert missing == []


def test_every_field_of_a_chat_and_of_a_document_can_be_set() -> None:
    chat = set(inspect.signature(chat_input).parameters)
    fields = {field.name for field in orchestrator_pb2.ChatInput.DESCRIPTOR.fields} - {"scope"}
    fields |= {field.name for field in orchestrator_pb2.Scope.DESCRIPTOR.fields}
    assert fields - chat == set()
    made = set(inspect.signature(document).parameters) | {"text", "data"}
    assert {f.name for f in retriever_pb2.DocumentInput.DESCRIPTOR.fields} - made == set()


def test_every_method_has_a_docstring_and_names_its_response() -> None:
    for name, each in _operations(Client):
        assert each.build.__doc__, name
        assert each.response.DESCRIPTOR.name == f"{each.rpc}Response", name


def test_a_document_may_be_bytes() -> None:
    assert document("d", b"%PDF-1.7").WhichOneof("content") == "data"
    assert document("d", "text").WhichOneof("content") == "text"


def test_what_is_not_said_is_left_to_the_contract() -> None:
    assert document("d", b"%PDF-1.7").content_type == retriever_pb2.CONTENT_TYPE_UNSPECIFIED
    assert document("d", "# text").content_type == retriever_pb2.CONTENT_TYPE_UNSPECIFIED
    chosen = {
        (name, parameter.name): parameter.default
        for name, each in _operations(Client)
        for parameter in inspect.signature(each.build).parameters.values()
        if "ValueType" in str(parameter.annotation) and parameter.default is not parameter.empty
    }
    assert chosen["open_document_part", "span"] == retriever_pb2.PART_SPAN_UNSPECIFIED
    assert {named: value for named, value in chosen.items() if value not in (0, ())} == {
        ("put_fact", "kind"): memory_pb2.FACT_KIND_FACT,  # Required by the contract.
        ("embed", "kinds"): (embedder_pb2.VECTOR_KIND_DENSE,),  # What empty means there.
    }


def test_an_import_is_sent_in_bounded_pieces() -> None:
    lines = ["年" * 100_000] * 10  # 300,000 bytes each
    header, *pieces = background.import_messages("u", lines, "r-1")
    assert header.header.user_id == "u"
    assert header.header.request_id == "r-1"
    assert [len(piece.lines.lines) for piece in pieces] == [3, 3, 3, 1]
    assert [message.WhichOneof("payload") for message in background.import_messages("u", [])] == [
        "header"
    ]
