"""EmbedderService: checks a request, calls the front, answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from opentelemetry import trace

from nianlun.common.v1 import common_pb2
from nianlun.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from services.common import context, errors, validate
from services.embedder import convert
from services.embedder.calibration import calibrated
from services.embedder.catalogue import Catalogue, ServedModel
from services.embedder.front import Asked, Done, Front
from services.embedder.model import InputType, Kind
from services.embedder.rerank_health import RerankHealth
from services.embedder.rerankers.base import Reranker, Scored
from services.embedder.worker import Failure

MAX_TEXTS = 1_024
MAX_DOCUMENTS = 512
MAX_QUERY_CHARS = 32_768
MAX_DOCUMENT_CHARS = 200_000
_MAX_RESPONSE_BYTES = 15 * 1024 * 1024
_MIN_TOKENS = 8
# A weight of four bytes and an index of at most five.
_SPARSE_BYTES = 9

# The server gives and takes what the generated stubs declare.
_Context = grpc.aio.ServicerContext[object, object]


@dataclass(frozen=True)
class RerankLimits:
    """Server's own bounds of a reranking: pairs and seconds."""

    max_pairs: int
    timeout_s: float


class EmbedderServicer(embedder_pb2_grpc.EmbedderServiceServicer):
    """The three RPCs."""

    def __init__(
        self, catalogue: Catalogue, front: Front, limits: RerankLimits, tracer: trace.Tracer
    ) -> None:
        self._catalogue = catalogue
        self._front = front
        self._limits = limits
        self._tracer = tracer
        self._health = RerankHealth()

    async def Embed(
        self, request: embedder_pb2.EmbedRequest, context: _Context
    ) -> embedder_pb2.EmbedResponse:
        """Vectors, item by item."""
        served = self._catalogue.model(validate.text("model", request.model, 256, 0))
        info = served.model.info
        if not info.dimensions:
            # A provider that has not answered since the start.
            raise errors.model_unavailable(info.id)
        kinds = _kinds(request, served)
        dimensions = _dimensions(request, served)
        validate.count("texts", request.texts, MAX_TEXTS, 1)
        room = _room(request, kinds, dimensions, served)
        began = time.monotonic()
        texts, changes, empty = _clean(request.texts)
        ticket = await self._front.embed(
            served.model,
            served.worker,
            Asked(
                texts=texts,
                input_type=_input_type(request),
                kinds=kinds,
                max_tokens=_max_tokens(request, info.max_tokens),
                truncate=_truncate(request),
                deadline=_deadline(),
                room=room,
            ),
        )
        response = embedder_pb2.EmbedResponse(
            model=info.id, revision=info.revision, dimensions=dimensions
        )
        results = ticket.results()
        if results and all(_unavailable(done) for done in results):
            raise errors.model_unavailable(info.id)
        found = iter(results)
        every = [Done(Failure("EMPTY_TEXT")) if is_empty else next(found) for is_empty in empty]

        def fill() -> None:
            for at, done in enumerate(every):
                item = convert.embed_item(
                    done, kinds, dimensions, request.multi_vector_encoding, served.codec
                )
                item.sanitized.extend(changes[at])
                response.items.append(item)
                response.token_count += item.token_count

        # Token vectors are much to convert and compress; the others cost less than the hand-over.
        if Kind.MULTI_VECTOR in kinds:
            await self._front.aside(fill)
        else:
            fill()
        self._timings(response, began, ticket.forward_s)
        return response

    async def Rerank(
        self, request: embedder_pb2.RerankRequest, context: _Context
    ) -> embedder_pb2.RerankResponse:
        """Documents, best first."""
        reranker = self._catalogue.reranker(validate.text("model", request.model, 256, 0))
        query = validate.text("query", request.query, MAX_QUERY_CHARS)
        validate.count("documents", request.documents, MAX_DOCUMENTS)
        validate.number("top_n", request.top_n, 0, MAX_DOCUMENTS)
        pairs, seconds = self._budget(request)
        for at, document in enumerate(request.documents):
            if len(document) > MAX_DOCUMENT_CHARS:
                raise errors.invalid_argument(
                    f"documents[{at}]", f"must have at most {MAX_DOCUMENT_CHARS} characters"
                )
        began = time.monotonic()
        texts, _, empty = _clean(request.documents)
        places = [at for at, is_empty in enumerate(empty) if not is_empty]
        scored = await _score(reranker, query, texts[:pairs], began + seconds)
        failures = scored.failures.values()
        if failures and not scored.raw and all(f.reason == "MODEL_UNAVAILABLE" for f in failures):
            raise errors.model_unavailable(reranker.info.id)
        response = embedder_pb2.RerankResponse(
            model=reranker.info.id,
            revision=reranker.info.revision,
            scored=len(scored.raw),
            completeness=_completeness(scored, len(texts)),
        )
        for at, is_empty in enumerate(empty):
            if is_empty:
                error = convert.item_error(Failure("EMPTY_TEXT"))
                response.errors.append(embedder_pb2.RerankError(index=at, error=error))
        for at, failure in scored.failures.items():
            error = convert.item_error(failure)
            response.errors.append(embedder_pb2.RerankError(index=places[at], error=error))
        _results(response, scored, places, reranker, request.top_n)
        self._health.observe(reranker.info.id, [texts[at] for at in scored.raw], scored.raw)
        if not self._health.healthy(reranker.info.id):
            response.degradations.append(_constant_scores(reranker.info.id))
        self._timings(response, began, scored.forward_s)
        return response

    async def ListModels(
        self, request: embedder_pb2.ListModelsRequest, context: _Context
    ) -> embedder_pb2.ListModelsResponse:
        """Everything that is served."""
        response = embedder_pb2.ListModelsResponse()
        for at, served in enumerate(self._catalogue.models):
            response.models.append(
                convert.model(
                    served.model.info,
                    default_embedder=at == 0,
                    default_reranker=False,
                    ready=served.ready,
                    max_texts=MAX_TEXTS,
                )
            )
        for at, reranker in enumerate(self._catalogue.rerankers):
            ready = reranker.worker.engine_ready(reranker.lane)
            response.models.append(
                convert.model(
                    reranker.info,
                    default_embedder=False,
                    default_reranker=at == 0,
                    ready=ready and self._health.healthy(reranker.info.id),
                    max_texts=MAX_DOCUMENTS,
                )
            )
        return response

    def _timings(
        self,
        response: embedder_pb2.EmbedResponse | embedder_pb2.RerankResponse,
        began: float,
        forward_s: float,
    ) -> None:
        """Say how long the call waited and how long its last batch ran, in answer and trace."""
        spent = time.monotonic() - began
        waited = max(spent - forward_s, 0.0)
        response.timings.add(step="queue", ms=waited * 1e3)
        response.timings.add(step="forward", ms=forward_s * 1e3)
        now = time.time_ns()
        start, middle = now - int(spent * 1e9), now - int(forward_s * 1e9)
        for name, since, until in (("queue", start, middle), ("forward", middle, now)):
            self._tracer.start_span(f"embedder.{name}", start_time=since).end(until)

    def _budget(self, request: embedder_pb2.RerankRequest) -> tuple[int, float]:
        """Pairs to score and seconds to do it in; the call's deadline keeps a margin to answer."""
        budget = request.budget
        validate.number("budget.max_pairs", budget.max_pairs, 0, MAX_DOCUMENTS)
        seconds = self._limits.timeout_s
        if budget.HasField("max_time"):
            seconds = budget.max_time.ToNanoseconds() / 1e9
            validate.number("budget.max_time", seconds, 0.001, 60.0)
        deadline = context.current_deadline()
        if deadline is not None:
            left = deadline.remaining()
            seconds = min(seconds, left - min(0.1, 0.1 * left))
        pairs = min(budget.max_pairs or MAX_DOCUMENTS, self._limits.max_pairs)
        return pairs, seconds


async def _score(reranker: Reranker, query: str, texts: Sequence[str], deadline: float) -> Scored:
    if not texts:
        return Scored({}, {})
    return await reranker.score(query, texts, deadline)


def _unavailable(done: Done) -> bool:
    return isinstance(done.outcome, Failure) and done.outcome.reason == "MODEL_UNAVAILABLE"


def _kinds(request: embedder_pb2.EmbedRequest, served: ServedModel) -> frozenset[Kind]:
    validate.count("kinds", request.kinds, 3)
    if len(set(request.kinds)) != len(request.kinds):
        raise errors.invalid_argument("kinds", "must not name a kind twice")
    kinds = set()
    for at, value in enumerate(request.kinds):
        validate.one_of_enum(f"kinds[{at}]", value, embedder_pb2.VectorKind)
        kinds.add(convert.KINDS[value])
    missing = kinds - served.model.info.kinds
    if missing:
        raise errors.invalid_argument(
            "kinds", f"{served.model.info.id} does not make: {', '.join(sorted(missing))}"
        )
    validate.one_of_enum(
        "multi_vector_encoding",
        request.multi_vector_encoding,
        embedder_pb2.MultiVectorEncoding,
        unspecified_ok=True,
    )
    compressed = embedder_pb2.MULTI_VECTOR_ENCODING_COMPRESSED
    if request.multi_vector_encoding == compressed and served.codec is None:
        raise errors.invalid_argument(
            "multi_vector_encoding", f"{served.model.info.id} has no codec for token vectors"
        )
    return frozenset(kinds) or frozenset({Kind.DENSE})


def _dimensions(request: embedder_pb2.EmbedRequest, served: ServedModel) -> int:
    info = served.model.info
    if not request.HasField("dimensions"):
        return info.dimensions
    if request.dimensions not in info.supported_dimensions:
        known = ", ".join(map(str, info.supported_dimensions))
        raise errors.invalid_argument("dimensions", f"must be one of {known}")
    return request.dimensions


def _room(
    request: embedder_pb2.EmbedRequest,
    kinds: frozenset[Kind],
    dimensions: int,
    served: ServedModel,
) -> int | None:
    """How many tokens the texts may have together so that the answer can be sent; None: any
    number. Refuses a call that is too large whatever its texts hold: a clean error beats a broken
    stream.
    """
    info = served.model.info
    a_text = dimensions * 4 if Kind.DENSE in kinds else 0
    a_token = _SPARSE_BYTES if Kind.SPARSE in kinds else 0
    if Kind.MULTI_VECTOR in kinds:
        if request.multi_vector_encoding == embedder_pb2.MULTI_VECTOR_ENCODING_COMPRESSED:
            a_text += info.multi_vector_max_vectors * (info.multi_vector_dimensions + 4)
        else:
            a_token += 2 * info.dimensions
    if len(request.texts) * a_text > _MAX_RESPONSE_BYTES:
        limit = _MAX_RESPONSE_BYTES // a_text
        raise errors.invalid_argument(
            "texts", f"must have at most {limit} items at {dimensions} dimensions"
        )
    left = _MAX_RESPONSE_BYTES - len(request.texts) * a_text
    return left // a_token if a_token else None


def _input_type(request: embedder_pb2.EmbedRequest) -> InputType:
    validate.one_of_enum("input_type", request.input_type, embedder_pb2.InputType)
    return convert.INPUT_TYPES[request.input_type]


def _truncate(request: embedder_pb2.EmbedRequest) -> bool:
    policy = embedder_pb2.TruncatePolicy
    validate.one_of_enum("truncate", request.truncate, policy, unspecified_ok=True)
    return request.truncate != embedder_pb2.TRUNCATE_POLICY_NONE


def _max_tokens(request: embedder_pb2.EmbedRequest, limit: int) -> int:
    if not request.HasField("max_tokens"):
        return limit
    validate.number("max_tokens", request.max_tokens, _MIN_TOKENS, limit)
    return request.max_tokens


def _clean(texts: Sequence[str]) -> tuple[list[str], list[tuple[str, ...]], list[bool]]:
    """Sanitised texts without the empty ones; of every text the changes, and whether it is
    empty.
    """
    kept, changes, empty = [], [], []
    for text in texts:
        clean, what = validate.sanitise(text)
        is_empty = not clean.strip()
        changes.append(what)
        empty.append(is_empty)
        if not is_empty:
            kept.append(clean)
    return kept, changes, empty


def _deadline() -> float | None:
    deadline = context.current_deadline()
    return None if deadline is None else deadline.at


def _completeness(scored: Scored, wanted: int) -> embedder_pb2.Completeness.ValueType:
    reached = len(scored.raw) + len(scored.failures)
    if reached == wanted:
        return embedder_pb2.COMPLETENESS_COMPLETE
    return embedder_pb2.COMPLETENESS_PARTIAL


def _results(
    response: embedder_pb2.RerankResponse,
    scored: Scored,
    places: Sequence[int],
    reranker: Reranker,
    top_n: int,
) -> None:
    best = sorted(scored.raw, key=lambda at: (-scored.raw[at], at))
    for at in best[: top_n or None]:
        raw = scored.raw[at]
        score = calibrated(raw, reranker.info.calibration)
        response.results.add(index=places[at], score=score, raw_score=raw)


def _constant_scores(model: str) -> common_pb2.Degradation:
    return common_pb2.Degradation(
        kind=common_pb2.DEGRADATION_KIND_MODEL_UNHEALTHY,
        source="embedder",
        message="The reranker gives different documents the same score.",
        metadata={"model": model},
    )
