"""`POST /v1/chat/completions`, plain and as server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.protobuf.json_format import MessageToDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from nianlun.common.v1 import common_pb2
from nianlun.orchestrator.v1 import orchestrator_pb2 as pb
from services.common.errors import DomainError
from services.common.grpc import client
from services.common.status import from_item
from services.orchestrator.gateway import errors
from services.orchestrator.gateway.backends import Backends, calling
from services.orchestrator.gateway.bodies import read_json, sse
from services.orchestrator.gateway.chat_request import ChatCall, as_asked, parse
from services.orchestrator.intents import INTENTS

_FINISH = {"length": "length", "content_filter": "content_filter"}
_SSE_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class ChatEndpoint:
    """Chat completions over the orchestrator."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        call = parse(await read_json(request), request)
        try:
            if not call.stream:
                return await self._whole(request, call)
            events = self._events(request, call)
            # Failures before the first event are still plain HTTP errors.
            first = await anext(events)
        except DomainError as error:
            raise as_asked(error) from error
        return StreamingResponse(
            _sse(call, first, events), media_type="text/event-stream", headers=_SSE_HEADERS
        )

    async def _whole(self, request: Request, call: ChatCall) -> Response:
        with calling(request, self._backends.timeout_s):
            asked = pb.ChatRequest(input=call.input, request_id=call.request_id)
            work = asyncio.ensure_future(_chat(self._backends, asked))
            gone = asyncio.ensure_future(_disconnected(request))
            try:
                await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    return Response(status_code=499)
                return JSONResponse(_completion(call, await work))
            finally:
                for task in (work, gone):
                    task.cancel()
                await asyncio.gather(work, gone, return_exceptions=True)

    async def _events(self, request: Request, call: ChatCall) -> AsyncGenerator[pb.ChatEvent, None]:
        with calling(request, self._backends.timeout_s):
            stream = self._backends.orchestrator.StreamChat(
                pb.StreamChatRequest(input=call.input, request_id=call.request_id)
            )
        # Closing this generator cancels the call, and with it the model's.
        try:
            async for message in client.stream(stream, "orchestrator"):
                yield message.event
        finally:
            stream.cancel()


async def _chat(backends: Backends, asked: pb.ChatRequest) -> pb.ChatResponse:
    return await backends.orchestrator.Chat(asked)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _sse(
    call: ChatCall, first: pb.ChatEvent, events: AsyncGenerator[pb.ChatEvent, None]
) -> AsyncGenerator[bytes, None]:
    head = {
        "id": f"chatcmpl-{first.run_id}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": call.model,
    }
    async with aclosing(events):
        yield sse({**head, "choices": [_choice({"role": "assistant", "content": ""})]})
        try:
            for piece in _chunks(call, head, first):
                yield piece
            async for event in events:
                for piece in _chunks(call, head, event):
                    yield piece
        except DomainError as error:
            yield sse(errors.domain_body(error)[1])
    yield b"data: [DONE]\n\n"


def _chunks(call: ChatCall, head: dict[str, Any], event: pb.ChatEvent) -> list[bytes]:
    kind = event.WhichOneof("event")
    if kind == "text_delta":
        return [sse({**head, "choices": [_choice({"content": event.text_delta.text})]})]
    if kind == "thinking_delta":
        delta = {"reasoning_content": event.thinking_delta.text}
        return [sse({**head, "choices": [_choice(delta)]})]
    if kind == "completed":
        return _last_chunks(call, head, event.completed)
    if call.events:
        shown = MessageToDict(event, preserving_proto_field_name=True)
        return [sse({**head, "choices": [], "nianlun": {"event": shown}})]
    return []


def _last_chunks(call: ChatCall, head: dict[str, Any], completed: pb.Completed) -> list[bytes]:
    if completed.state != pb.RUN_STATE_COMPLETED:
        return [sse(errors.domain_body(from_item(completed.error))[1])]
    response = completed.response
    chunks = []
    choice = _choice({}, _finish(response))
    # The answer may differ from the deltas (text before a call of a tool, a citation of nothing, a
    # recovery): it comes whole, since the places of citations are places in it.
    details = {**_details(response), "answer": response.answer.text}
    chunks.append(sse({**head, "choices": [choice], "nianlun": details}))
    if call.include_usage:
        chunks.append(sse({**head, "choices": [], "usage": _usage(response.usage)}))
    return chunks


def _completion(call: ChatCall, response: pb.ChatResponse) -> dict[str, Any]:
    message = {"role": "assistant", "content": response.answer.text, "refusal": None}
    return {
        "id": f"chatcmpl-{response.run_id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": call.model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": _finish(response),
            }
        ],
        "usage": _usage(response.usage),
        "nianlun": _details(response),
    }


def _details(response: pb.ChatResponse) -> dict[str, Any]:
    """What OpenAI's format has no place for: sources, memory, what was degraded."""
    answer = response.answer
    return {
        "run_id": response.run_id,
        "intent": INTENTS[response.intent].slug if response.intent in INTENTS else "",
        "finish_reason": answer.finish_reason,
        "citations": [_citation(one) for one in answer.citations],
        "memories": [
            {"item_id": m.item_id, "layer": m.layer, "trust": m.trust, "text": m.text}
            for m in answer.memories
        ],
        "degradations": [
            {
                "kind": common_pb2.DegradationKind.Name(d.kind).removeprefix("DEGRADATION_KIND_"),
                "source": d.source,
                "message": d.message,
            }
            for d in response.degradations
        ],
        "model": response.model,
        "replayed": response.replayed,
    }


def _citation(one: pb.Citation) -> dict[str, Any]:
    return {
        "id": one.evidence_id,
        "start": one.start,
        "end": one.end,
        "collection_id": one.evidence.collection_id,
        "document_id": one.evidence.document_id,
        "chunk_id": one.evidence.chunk_id,
        "title": one.evidence.title,
        "section": one.evidence.section,
        "score": one.evidence.score,
        "text": one.evidence.text,
    }


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _usage(usage: common_pb2.TokenUsage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _finish(response: pb.ChatResponse) -> str:
    return _FINISH.get(response.answer.finish_reason, "stop")
