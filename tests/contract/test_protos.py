"""Conventions that buf has no rule for; they hold for every method and message there is."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from grpc_tools import protoc

from tests.support import contract
from tests.support.contract import FILES, RPCS, Rpc

ROOT = Path(__file__).resolve().parents[2]
MUTATING = [rpc for rpc in RPCS if not rpc.read_only]
rpc_case = pytest.mark.parametrize("rpc", RPCS, ids=lambda rpc: rpc.name)
mutating_case = pytest.mark.parametrize("rpc", MUTATING, ids=lambda rpc: rpc.name)

# What a read may be called; everything else changes something and must say so.
READ_PREFIXES = ("Get", "List", "Search", "Load", "Find", "Watch", "Export", "Open", "Build")
READS_BY_NATURE = {"embedder.Embed", "embedder.Rerank"}


@rpc_case
def test_every_rpc_has_an_idempotency_level(rpc: Rpc) -> None:
    level = rpc.method.GetOptions().idempotency_level
    assert level != descriptor_pb2.MethodOptions.IDEMPOTENCY_UNKNOWN


@rpc_case
def test_a_read_is_called_a_read(rpc: Rpc) -> None:
    sounds_like_a_read = rpc.method.name.startswith(READ_PREFIXES) or rpc.name in READS_BY_NATURE
    assert rpc.read_only == sounds_like_a_read


@mutating_case
def test_every_mutating_request_has_a_request_id(rpc: Rpc) -> None:
    request = rpc.method.input_type
    if rpc.method.client_streaming:
        # A stream opens with a header message, and that holds the id once.
        header = contract.field(request, "header")
        assert header is not None
        request = header.message_type
    found = contract.field(request, "request_id")
    assert found is not None
    assert found.type == FieldDescriptor.TYPE_STRING


@rpc_case
def test_lists_have_pages_from_day_one(rpc: Rpc) -> None:
    request, response = rpc.method.input_type, rpc.method.output_type
    if not rpc.method.name.startswith("List"):
        assert contract.field(response, "next_page_token") is None or (
            contract.field(request, "page_token") is not None
        )
        return
    if rpc.name in {"embedder.ListModels", "retriever.ListRecipes"}:
        assert not request.fields  # configuration, a handful at most, the same for all
        return
    size = contract.field(request, "page_size")
    assert size is not None
    assert size.type == FieldDescriptor.TYPE_INT32
    assert contract.field(request, "page_token") is not None
    assert contract.field(response, "next_page_token") is not None


@rpc_case
def test_request_and_response_are_named_after_the_method(rpc: Rpc) -> None:
    assert rpc.method.input_type.name == f"{rpc.method.name}Request"
    assert rpc.method.output_type.name == f"{rpc.method.name}Response"


@rpc_case
def test_streams_only_where_they_are_worth_it(rpc: Rpc) -> None:
    streaming = rpc.method.client_streaming or rpc.method.server_streaming
    allowed = {
        "orchestrator.StreamChat",
        "memory.ExportUser",
        "memory.ImportUser",
        "memory.WatchJob",
        "retriever.WatchJob",
    }
    assert not streaming or rpc.name in allowed


@pytest.mark.parametrize("enum", list(contract.enums()), ids=lambda enum: enum.full_name)
def test_enum_zero_is_unspecified(enum) -> None:
    zero = enum.values_by_number[0].name
    assert zero.endswith("_UNSPECIFIED")
    prefix = zero.removesuffix("UNSPECIFIED")
    assert all(value.name.startswith(prefix) for value in enum.values)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_package_folder_imports_and_java_options(file) -> None:
    service = file.package.split(".")[1]
    assert file.package == f"nianlun.{service}.v1"
    assert file.name == f"nianlun/{service}/v1/{service}.proto"
    options = descriptor_pb2.FileOptions()
    options.ParseFromString(file.GetOptions().SerializeToString())
    assert options.java_multiple_files
    assert options.java_package == f"io.nianlun.{service}.v1"
    for imported in file.dependencies:
        assert imported.name.startswith("google/protobuf/") or (
            imported.name == "nianlun/common/v1/common.proto"
        ), imported.name
        # Struct turns integers into doubles.
        assert imported.name != "google/protobuf/struct.proto"


def test_jobs_look_the_same_in_both_services() -> None:
    for name in ("GetJob", "ListJobs", "CancelJob", "ReplayJob", "WatchJob"):
        shapes = [
            [
                [(f.name, f.type, f.is_repeated) for f in message.fields]
                for message in (rpc.method.input_type, rpc.method.output_type)
            ]
            for rpc in (contract.BY_NAME[f"memory.{name}"], contract.BY_NAME[f"retriever.{name}"])
        ]
        assert [sorted(s) for s in shapes[0]] == [sorted(s) for s in shapes[1]], name


def _source_info() -> descriptor_pb2.FileDescriptorSet:
    with tempfile.NamedTemporaryFile() as out:
        files = sorted(str(p) for p in (ROOT / "protos/nianlun").rglob("*.proto"))
        assert (
            protoc.main(
                [
                    "protoc",
                    f"-I{ROOT / 'protos'}",
                    f"-I{Path(protoc.__file__).parent / '_proto'}",
                    "--include_source_info",
                    f"--descriptor_set_out={out.name}",
                    *files,
                ]
            )
            == 0
        )
        return descriptor_pb2.FileDescriptorSet.FromString(Path(out.name).read_bytes())


def _named(file: descriptor_pb2.FileDescriptorProto) -> Iterator[tuple[tuple[int, ...], str]]:
    """Everything that has a name, by its path of field numbers in FileDescriptorProto."""
    for s, service in enumerate(file.service):
        yield (6, s), service.name
        for m, method in enumerate(service.method):
            yield (6, s, 2, m), f"{service.name}.{method.name}"
    for m, message in enumerate(file.message_type):
        yield (4, m), message.name
        for f, field in enumerate(message.field):
            yield (4, m, 2, f), f"{message.name}.{field.name}"
    for e, enum in enumerate(file.enum_type):
        yield (5, e), enum.name
        for v, value in enumerate(enum.value):
            yield (5, e, 2, v), f"{enum.name}.{value.name}"


def _undocumented(file: descriptor_pb2.FileDescriptorProto) -> list[str]:
    commented = {
        tuple(location.path)
        for location in file.source_code_info.location
        if location.leading_comments.strip()
    }
    return [name for path, name in _named(file) if path not in commented]


def test_everything_is_documented() -> None:
    assert [name for file in _source_info().file for name in _undocumented(file)] == []


def _numeric_bound_missing(file: descriptor_pb2.FileDescriptorProto) -> Iterator[str]:
    comments = {
        tuple(location.path): location.leading_comments
        for location in file.source_code_info.location
    }
    for m, message in enumerate(file.message_type):
        for f, field in enumerate(message.field):
            bounded = field.name in {"request_id", "page_size", "top_k"}
            comment = comments.get((4, m, 2, f), "")
            said = any(c.isdigit() for c in comment) or "As in" in comment
            if message.name.endswith("Request") and bounded and not said:
                yield f"{message.name}.{field.name}"


def test_bounds_stand_in_the_comments() -> None:
    assert [name for file in _source_info().file for name in _numeric_bound_missing(file)] == []


def test_page_sizes_say_that_larger_ones_are_cut() -> None:
    said = re.compile(r"1 to (\d+); 0 means \d+; larger values are cut to \1\.")
    for file in _source_info().file:
        comments = {
            tuple(x.path): x.leading_comments.strip() for x in file.source_code_info.location
        }
        for m, message in enumerate(file.message_type):
            for f, field in enumerate(message.field):
                if field.name == "page_size":
                    assert said.fullmatch(comments[4, m, 2, f]), message.name


def test_the_contract_is_plain_proto3_that_an_old_compiler_reads() -> None:
    """Debian's protoc 3.21 knows neither editions nor features; nor may a name clash in Java."""
    for path in (ROOT / "protos/nianlun").rglob("*.proto"):
        text = path.read_text(encoding="utf-8")
        assert 'syntax = "proto3";' in text, path
        assert "edition =" not in text, path
        assert "import option" not in text, path


def _walk(message: Descriptor, seen: set[str]) -> Iterator[FieldDescriptor]:
    if message.full_name in seen:
        return
    seen.add(message.full_name)
    for field in message.fields:
        yield field
        if field.message_type is not None:
            yield from _walk(field.message_type, seen)


@rpc_case
def test_times_are_timestamps(rpc: Rpc) -> None:
    for field in _walk(rpc.method.input_type, set()):
        if field.name.endswith("_time"):
            assert field.message_type is not None, field.full_name
            assert field.message_type.full_name in {
                "google.protobuf.Timestamp",
                "google.protobuf.Duration",
            }, field.full_name
