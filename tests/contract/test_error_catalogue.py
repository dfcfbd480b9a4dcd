"""The published reasons and the catalogue in the code are one list."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest
from google.rpc import error_details_pb2

from nianlun.common.v1 import common_pb2
from nianlun.errors import RETRYABLE_REASONS
from services.common import errors, status

PREFIX = "ERROR_REASON_"
REASONS = [name.removeprefix(PREFIX) for name in common_pb2.ErrorReason.keys()]  # noqa: SIM118
PUBLISHED = [reason for reason in REASONS if reason != "UNSPECIFIED"]
ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "protos/nianlun/common/v1/common.proto"
RETRYABLE = {reason for reason, entry in errors.CATALOGUE.items() if entry.retryable}
# Where the list stands in the clients of other languages: file, and the start of the list.
FOREIGN = {
    "clients/typescript/src/errors.ts": "RETRYABLE_REASONS: ReadonlySet<ErrorReason> = new Set([",
    "clients/java/src/main/java/io/nianlun/client/NianlunException.java": (
        "Set<ErrorReason> RETRYABLE_REASONS =\n      EnumSet.of("
    ),
}


def test_every_published_reason_is_in_the_catalogue_and_no_other() -> None:
    assert set(errors.CATALOGUE) == set(PUBLISHED)


def _comment(reason: str) -> str:
    text = PROTO.read_text(encoding="utf-8")
    block = re.search(rf"((?: *//.*\n)+) *{PREFIX}{reason} = ", text)
    assert block is not None
    return block.group(1)


@pytest.mark.parametrize("reason", PUBLISHED)
def test_the_comment_names_the_code_that_is_sent(reason: str) -> None:
    first = _comment(reason).strip().removeprefix("//").strip()
    named = re.match(r"([A-Z_]+)(?:, per item)?:", first)
    assert named is not None, first
    assert grpc.StatusCode[named.group(1)] is errors.CATALOGUE[reason].code


def _first_column(heading: str) -> list[str]:
    """The names in the first column of the first table after a heading of docs/errors.md."""
    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8").split(heading, 1)[1]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    cells = [row.split("|")[1] for row in table[0].splitlines()[2:]]
    return [name for cell in cells for name in re.findall(r"`([A-Z_]+)`", cell)]


def test_the_page_explains_every_reason_and_every_degradation_once() -> None:
    kinds = [name.removeprefix("DEGRADATION_KIND_") for name in common_pb2.DegradationKind.keys()]  # noqa: SIM118
    assert sorted(_first_column("# Errors")) == sorted(PUBLISHED)
    assert sorted(_first_column("## Degradations")) == sorted(set(kinds) - {"UNSPECIFIED"})


@pytest.mark.parametrize("reason", PUBLISHED)
def test_the_status_has_exactly_one_error_info_and_fits_in_trailers(reason: str) -> None:
    error = errors.DomainError(
        reason,
        "长" * 50_000,
        metadata={f"k{i}": "v" * 10_000 for i in range(100)},
        violations=[(f"f{i}" * 1000, "d" * 10_000) for i in range(500)],
        retry_after_s=1.5,
        resource=("type" * 1000, "name" * 1000),
        detail="private",
    )
    sent = status.to_status(error)
    infos = [d for d in sent.details if d.Is(error_details_pb2.ErrorInfo.DESCRIPTOR)]
    assert len(infos) == 1
    info = error_details_pb2.ErrorInfo()
    infos[0].Unpack(info)
    assert (info.reason, info.domain) == (reason, "nianlun.io")
    # Trailers over 8 KB reach the caller as RESOURCE_EXHAUSTED instead of the real failure.
    assert len(sent.SerializeToString()) + len(quote(sent.message)) < 8_000
    assert b"private" not in sent.SerializeToString()


def test_what_may_be_tried_again_is_one_list() -> None:
    assert {
        "FRESHNESS_NOT_MET",
        "OVERLOADED",
        "DATABASE_UNAVAILABLE",
        "DEPENDENCY_UNAVAILABLE",
        "MODEL_UNAVAILABLE",
        "DEADLINE_EXCEEDED",
    } == RETRYABLE
    assert {reason for reason in PUBLISHED if "Retryable." in _comment(reason)} == RETRYABLE
    python = {common_pb2.ErrorReason.Name(number) for number in RETRYABLE_REASONS}
    assert {name.removeprefix(PREFIX) for name in python} == RETRYABLE


@pytest.mark.parametrize("path", FOREIGN)
def test_the_other_clients_have_the_same_list(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    listed = text.split(FOREIGN[path])[1].split(")")[0]
    found = re.findall(rf"ErrorReason\.(?:{PREFIX})?([A-Z_]+)", listed)
    assert sorted(found) == sorted(RETRYABLE)


@pytest.mark.parametrize("reason", PUBLISHED)
def test_the_page_of_errors_names_every_reason_that_may_be_tried_again(reason: str) -> None:
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    listed = page.split("Retryable are ")[1].split(".")[0]
    assert (f"`{reason}`" in listed) is (reason in RETRYABLE)
