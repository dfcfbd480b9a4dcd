"""Which documents a turn may read: what a search filters, everything else is held against."""

from __future__ import annotations

from collections.abc import Mapping

from nianlun.common.v1 import common_pb2
from services.common import validate
from services.orchestrator.domain import TurnInput


def holds(turn: TurnInput, document_id: str, metadata: Mapping[str, common_pb2.Value]) -> bool:
    """Whether a document of the turn's collection lies in its scope.

    Conditions mean what FILTER_OP_EQ means in a search: a list matches when it holds the value,
    integers and doubles are one, a key that is missing never matches.
    """
    if turn.document_ids and document_id not in turn.document_ids:
        return False
    if not turn.metadata_equals:
        return True
    wanted = validate.value_map("metadata_equals", turn.metadata_equals)
    held = validate.value_map("metadata", {k: metadata[k] for k in wanted if k in metadata})
    return all(key in held and _equal(held[key], value) for key, value in wanted.items())


def _equal(held: validate.Json, wanted: validate.Json) -> bool:
    if isinstance(wanted, list):  # A search refuses it.
        return False
    if isinstance(held, list):
        return wanted in held
    held, wanted = _plain(held), _plain(wanted)
    return isinstance(held, bool) == isinstance(wanted, bool) and held == wanted


def _plain(value: validate.Json) -> validate.Json:
    """A large double is stored apart from integers, and equals them as in a search."""
    if isinstance(value, dict) and validate.DOUBLE in value:
        return float(str(value[validate.DOUBLE]))
    return value
