"""Requests into values: every bound that the contract states is checked here."""

from __future__ import annotations

import hashlib
import math
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NoReturn

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from services.common import errors, validate
from services.retriever.domain import Condition, Scope, Upload
from services.retriever.spec import (
    DEFAULT_RERANK_BUDGET_S,
    MAX_QUERY_CHARS,
    NEAR_DUPLICATE,
    Context,
    SearchSpec,
)
from services.search import Leg, recipes
from services.search.recipes import Fusion, Recipe, RecipeError

MAX_DOCUMENTS: Final = 256
MAX_CONTENT_BYTES: Final = 14 * 1024 * 1024
MAX_DATA_BYTES: Final = 12 * 1024 * 1024
MAX_TEXT_CHARS: Final = 8_000_000
_COLLECTION_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_METADATA_KEY: Final = re.compile(r"[\w.-]{1,64}")
_LEGS: Final = {
    pb.LEG_DENSE: Leg.DENSE,
    pb.LEG_LEXICAL: Leg.LEXICAL,
    pb.LEG_PHRASE: Leg.PHRASE,
}
_FUSIONS: Final = {
    pb.FUSION_KIND_CALIBRATED: Fusion.CALIBRATED,
    pb.FUSION_KIND_RRF: Fusion.RRF,
    pb.FUSION_KIND_MIN_MAX_MAX: Fusion.MINMAX_MAX,
}
_OPS: Final = {
    pb.FILTER_OP_EQ: "eq",
    pb.FILTER_OP_NE: "ne",
    pb.FILTER_OP_LT: "lt",
    pb.FILTER_OP_LE: "le",
    pb.FILTER_OP_GT: "gt",
    pb.FILTER_OP_GE: "ge",
    pb.FILTER_OP_IN: "in",
    pb.FILTER_OP_EXISTS: "exists",
    pb.FILTER_OP_NOT_EXISTS: "not_exists",
}


def collection_id(value: str, field: str = "collection_id") -> str:
    """An id of a collection."""
    if not _COLLECTION_ID.fullmatch(value):
        raise errors.invalid_argument(
            field, "must be 1..64 of a-z, 0-9, '-', '_' and begin with a letter or digit"
        )
    return value


def recipe_name(value: str, field: str) -> str:
    """The name of a recipe that exists."""
    try:
        return recipes.recipe(value).name
    except RecipeError as error:
        raise errors.invalid_argument(field, error.reason) from None


# ---- documents ---------------------------------------------------------------------------------


def uploads(request: pb.UpsertDocumentsRequest) -> list[Upload]:
    """The documents of a request, checked and sanitised but for their content."""
    validate.count("documents", request.documents, MAX_DOCUMENTS, 1)
    out = [_upload(n, d) for n, d in enumerate(request.documents)]
    seen: set[str] = set()
    for upload in out:
        if upload.document_id in seen:
            raise errors.invalid_argument(
                f"documents[{upload.position}].document_id", "stands twice in this request"
            )
        seen.add(upload.document_id)
    total = sum(len(u.data or b"") + len((u.text or "").encode()) for u in out)
    if total > MAX_CONTENT_BYTES:
        raise errors.message_too_large(total, MAX_CONTENT_BYTES)
    return out


def _upload(position: int, given: pb.DocumentInput) -> Upload:
    field = f"documents[{position}]"
    changes: list[common_pb2.Sanitization] = []
    kind = given.WhichOneof("content")
    if kind is None:
        raise errors.invalid_argument(f"{field}.content", "is required: text or data")
    content: str | None = None
    if kind == "text":
        content = validate.text(f"{field}.text", given.text, MAX_TEXT_CHARS, 1, changes)
        digest = hashlib.sha256(content.encode()).digest()
    else:
        if not given.data:
            raise errors.invalid_argument(f"{field}.data", "must have at least 1 byte")
        if len(given.data) > MAX_DATA_BYTES:
            raise errors.message_too_large(len(given.data), MAX_DATA_BYTES)
        digest = hashlib.sha256(given.data).digest()
    return Upload(
        position=position,
        document_id=validate.ident(f"{field}.document_id", given.document_id),
        title=validate.text(f"{field}.title", given.title, 500, 0, changes).strip(),
        format=validate.one_of_enum(
            f"{field}.content_type", given.content_type, pb.ContentType, unspecified_ok=True
        ),
        uri=validate.text(f"{field}.uri", given.uri, 2_000, 0, changes),
        metadata=_metadata(f"{field}.metadata", given.metadata),
        changes=[{"field": c.field, "changes": list(c.changes)} for c in changes],
        content_hash=digest,
        text=content,
        data=given.data if kind == "data" else None,
    )


def _metadata(field: str, given: Mapping[str, common_pb2.Value]) -> dict[str, validate.Json]:
    for key in given:
        if not _METADATA_KEY.fullmatch(key):
            raise errors.invalid_argument(
                field, "keys must be 1..64 letters, digits, '_', '-' or '.'"
            )
    return validate.value_map(field, given, 64)


# ---- scopes ------------------------------------------------------------------------------------


def scope(given: pb.SearchScope, field: str) -> Scope:
    """A collection or the part of it that is to be searched."""
    validate.count(f"{field}.document_ids", given.document_ids, 1_000)
    ids = [
        validate.ident(f"{field}.document_ids[{n}]", i) for n, i in enumerate(given.document_ids)
    ]
    return Scope(
        collection_id=collection_id(given.collection_id, f"{field}.collection_id"),
        document_ids=tuple(dict.fromkeys(ids)),
        conditions=conditions(given.filter, f"{field}.filter"),
    )


def conditions(given: pb.MetadataFilter, field: str) -> tuple[Condition, ...]:
    """A metadata filter."""
    validate.count(f"{field}.all", given.all, 16)
    return tuple(_condition(c, f"{field}.all[{n}]") for n, c in enumerate(given.all))


def _condition(given: pb.MetadataCondition, field: str) -> Condition:
    if not _METADATA_KEY.fullmatch(given.key):
        raise errors.invalid_argument(f"{field}.key", "must be a metadata key")
    op = _OPS.get(given.op)
    if op is None:
        raise errors.invalid_argument(f"{field}.op", "is required")
    most = {"exists": 0, "not_exists": 0, "in": 100}.get(op, 1)
    validate.count(f"{field}.values", given.values, most, min(most, 1))
    typed = [_typed(v, f"{field}.values[{n}]") for n, v in enumerate(given.values)]
    kinds = {kind for kind, _ in typed}
    if len(kinds) > 1:
        raise errors.invalid_argument(f"{field}.values", "must be of one type")
    return Condition(given.key, op, next(iter(kinds), ""), tuple(value for _, value in typed))


def _typed(value: common_pb2.Value, field: str) -> tuple[str, object]:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return "text", validate.text(field, value.string_value, 1_024, 0)
    if kind == "int_value":
        return "number", Decimal(value.int_value)
    if kind == "double_value":
        if not math.isfinite(value.double_value):
            raise errors.invalid_argument(field, "must be finite")
        return "number", Decimal(repr(value.double_value))
    if kind == "bool_value":
        return "bool", value.bool_value
    if kind == "timestamp_value":
        return "time", validate.instant(field, value.timestamp_value)
    raise errors.invalid_argument(field, "must be a text, number, truth value or timestamp")


# ---- search ------------------------------------------------------------------------------------


def search(
    request: pb.SearchRequest, recipe: str, sanitizations: list[common_pb2.Sanitization]
) -> tuple[SearchSpec, bool]:
    """The search to run, and whether the query was cut. `recipe`: the name to begin with."""
    query = request.query
    cut = len(query) > MAX_QUERY_CHARS
    query = validate.text("query", query[:MAX_QUERY_CHARS], MAX_QUERY_CHARS, 1, sanitizations)
    parameters, candidates = _parameters(request)
    try:
        base = recipes.recipe(recipe)
    except RecipeError as error:
        raise errors.invalid_argument(error.field, error.reason) from None
    try:
        chosen: Recipe = recipes.customise(base, parameters)
    except RecipeError as error:
        _refuse(error)
    rerank = request.rerank
    validate.number("rerank.budget_ms", rerank.budget_ms, 0, 60_000)
    return SearchSpec(
        query=query,
        scopes=scopes(request),
        recipe=chosen,
        explain=request.explain if request.HasField("explain") else True,
        rerank_model=validate.text("rerank.model_id", rerank.model_id, 256, 0),
        rerank_by_model=rerank.kind == pb.RERANK_KIND_MODEL or bool(rerank.model_id),
        rerank_budget_s=rerank.budget_ms / 1000 if rerank.budget_ms else DEFAULT_RERANK_BUDGET_S,
        candidates=candidates,
        context=_context(request.context),
    ), cut


def scopes(request: pb.SearchRequest) -> tuple[Scope, ...]:
    """The scopes of a search: different collections."""
    validate.count("scopes", request.scopes, 16, 1)
    out = tuple(scope(s, f"scopes[{n}]") for n, s in enumerate(request.scopes))
    if len({s.collection_id for s in out}) < len(out):
        raise errors.invalid_argument("scopes", "name a collection twice")
    return out


def _parameters(request: pb.SearchRequest) -> tuple[dict[str, object], dict[Leg, int]]:
    """What the request sets, by the engine's names; candidates per leg."""
    out: dict[str, object] = {}
    weights: dict[str, float] = {}
    candidates: dict[Leg, int] = {}
    seen: set[int] = set()
    for n, setting in enumerate(request.legs):
        leg = _LEGS.get(setting.leg)
        if leg is None or setting.leg in seen:
            raise errors.invalid_argument(f"legs[{n}].leg", "must be a leg, each at most once")
        seen.add(setting.leg)
        if setting.HasField("weight"):
            weights[leg] = validate.number(f"legs[{n}].weight", setting.weight, 0.0, 10.0)
        validate.number(f"legs[{n}].candidates", setting.candidates, 0, 1_000)
        if setting.candidates:
            candidates[leg] = setting.candidates
    if weights:
        out["weights"] = weights
    if request.fusion:
        out["fusion"] = _FUSIONS[request.fusion]
    if request.gate:
        out["gate"] = request.gate == pb.GATE_MODE_ON
    if request.rerank.kind:
        out["rerank"] = request.rerank.kind != pb.RERANK_KIND_OFF
    if request.rerank.candidates:
        out["rerank_head"] = request.rerank.candidates
    out["top_k"] = validate.number("top_k", request.top_k, 0, 1_000) or 10
    out.update(_diversity(request.diversity))
    return out, candidates


def _diversity(given: pb.DiversityOptions) -> dict[str, object]:
    out: dict[str, object] = {}
    if given.HasField("suppress_near_duplicates"):
        out["near_duplicate"] = NEAR_DUPLICATE if given.suppress_near_duplicates else 0.0
    if given.HasField("mmr_lambda"):
        if not 0.0 < given.mmr_lambda <= 1.0:
            raise errors.invalid_argument("diversity.mmr_lambda", "must be above 0, at most 1")
        out["mmr_lambda"] = given.mmr_lambda
    if given.max_per_document:
        out["per_document"] = validate.number(
            "diversity.max_per_document", given.max_per_document, 1, 1_000
        )
    return out


def _context(given: pb.ContextOptions) -> Context:
    validate.number("context.before", given.before, 0, 5)
    validate.number("context.after", given.after, 0, 5)
    validate.number("context.max_parent_chars", given.max_parent_chars, 0, 20_000)
    return Context(given.before, given.after, given.parent, given.max_parent_chars or 4_000)


_FIELD_NAMES: Final = {
    "leg_k": "legs",
    "rerank_head": "rerank.candidates",
    "near_duplicate": "diversity.suppress_near_duplicates",
    "mmr_lambda": "diversity.mmr_lambda",
    "per_document": "diversity.max_per_document",
    "weights": "legs",
}


def _refuse(error: RecipeError) -> NoReturn:
    name = _FIELD_NAMES.get(error.field, error.field)
    raise errors.invalid_argument(name, error.reason) from None


# ---- calibration -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A question and the documents that answer it; none: it has no answer."""

    query: str
    document_ids: tuple[str, ...]


def pairs(request: pb.CalibrateRequest) -> list[Pair]:
    """The labelled pairs of a calibration."""
    validate.count("pairs", request.pairs, 1_000)
    out: list[Pair] = []
    for n, given in enumerate(request.pairs):
        validate.count(f"pairs[{n}].document_ids", given.document_ids, 20)
        out.append(
            Pair(
                validate.text(f"pairs[{n}].query", given.query, 4_096),
                tuple(
                    validate.ident(f"pairs[{n}].document_ids[{m}]", i)
                    for m, i in enumerate(given.document_ids)
                ),
            )
        )
    return out


def chunk_id(value: str) -> str:
    """A chunk's id, "" where none is given; NOT_FOUND for what can be no id."""
    if not value:
        return ""
    try:
        return str(uuid.UUID(validate.ident("chunk_id", value)))
    except ValueError:
        raise errors.not_found("chunk", value[:64]) from None
