"""A language model that speaks real HTTP and does exactly what a test scripts.

It runs in a thread with its own loop, so that a test that blocks (a subprocess, a synchronous
client) does not block the model. Endpoints: `/v1/chat/completions`, plain and streamed,
`/v1/embeddings` and `/v1/models`. Rules are tried in the order newest first; the first one whose
matcher accepts the call gives its next reply, and its last reply for ever.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from tests.support import fake_embeddings

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Reply:
    """What the model does with one call.

    `pieces` are the deltas of a stream, joined where the call does not stream. `cut_after` closes
    the connection after so many deltas (0: right after the headers). `body` replaces the answer's
    bytes. Delays are seconds; `gate` holds the answer back until it is set.
    """

    pieces: tuple[str, ...] = ()
    tool_calls: tuple[tuple[str, str], ...] = ()
    status: int = 200
    error: str = "scripted"
    headers: Headers = ()
    delay_s: float = 0.0
    piece_delay_s: float = 0.0
    gate: threading.Event | None = None
    cut_after: int | None = None
    body: bytes | None = None
    usage: bool = True


@dataclass
class Call:
    """One request as it arrived. `ended` is set when it was answered or its client went away."""

    path: str
    headers: dict[str, str]
    raw: bytes
    at: float = field(default_factory=monotonic)
    disconnected_at: float | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def json(self) -> dict[str, Any]:
        """The body, parsed."""
        parsed: dict[str, Any] = json.loads(self.raw)
        return parsed

    @property
    def stream(self) -> bool:
        """Whether deltas were asked for."""
        return bool(self.json.get("stream"))

    @property
    def text(self) -> str:
        """All message contents of a chat, or the inputs of an embedding call, in order."""
        return "\n".join(_content(message) for message in self.json.get("messages", ()))

    def of_role(self, role: str) -> str:
        """The contents of the messages of one role."""
        messages = self.json.get("messages", ())
        return "\n".join(_content(m) for m in messages if m.get("role") == role)


Matcher = Callable[[Call], bool]


def text(content: str, **options: Any) -> Reply:
    """An answer; streams as pieces of at most four characters."""
    pieces = tuple(content[i : i + 4] for i in range(0, len(content), 4))
    return Reply(pieces=pieces, **options)


def as_json(value: object, **options: Any) -> Reply:
    """An answer that is JSON."""
    return text(json.dumps(value, ensure_ascii=False), **options)


def tool_call(name: str, arguments: dict[str, Any] | str, **options: Any) -> Reply:
    """A request to call one tool; arguments given as a string may be broken on purpose."""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return Reply(tool_calls=((name, arguments),), **options)


def rate_limited(retry_after_s: float | None = 0.1) -> Reply:
    """429, with Retry-After unless None."""
    headers = () if retry_after_s is None else (("retry-after", f"{retry_after_s:g}"),)
    return Reply(status=429, headers=headers)


def failure(status: int = 500, message: str = "scripted") -> Reply:
    """An error of the provider, with its message."""
    return Reply(status=status, error=message)


def raw_stream(*events: str) -> Reply:
    """A stream of server-sent events as they are given, one JSON text each."""
    return Reply(
        body="".join(f"data: {one}\n\n" for one in (*events, "[DONE]")).encode(),
        headers=(("content-type", "text/event-stream"),),
    )


def broken_json() -> Reply:
    """200 with a body that ends in the middle."""
    return Reply(body=b'{"id": "x", "choices": [{"message": {"content": "ha')


def cut(content: str, after: int, **options: Any) -> Reply:
    """A stream whose connection breaks after `after` deltas."""
    reply = text(content, **options)
    return Reply(
        pieces=reply.pieces,
        cut_after=after,
        delay_s=reply.delay_s,
        piece_delay_s=reply.piece_delay_s,
    )


class FakeLlm:
    """The server. `calls` holds every request in order of arrival."""

    def __init__(self, model: str = "fake-1") -> None:
        self.model = model
        self.api_key = "sk-fake-key-of-the-tests"
        self.calls: list[Call] = []
        self.port = 0
        self.embeddings = fake_embeddings.FakeEmbeddings()
        self._rules: list[tuple[Matcher, list[Reply]]] = []
        self._default = text("好的，记下了。")
        self._mutex = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="fake-llm", daemon=True)
        self._started = threading.Event()

    @property
    def base_url(self) -> str:
        """What goes into LLM_BASE_URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make a service use this model."""
        return {
            "LLM_BASE_URL": self.base_url,
            "LLM_API_KEY": self.api_key,
            "LLM_MODEL": self.model,
        }

    def start(self) -> None:
        """Listen on a free loopback port."""
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Close every connection and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    def reset(self) -> None:
        """Forget rules and calls."""
        with self._mutex:
            self._rules.clear()
            self.calls.clear()

    def on(self, matcher: Matcher | str | None, *replies: Reply) -> None:
        """Script: calls that match (None: all; a string: that stand in their messages)."""
        if matcher is None:
            accepts: Matcher = _any
        elif isinstance(matcher, str):
            accepts = _containing(matcher)
        else:
            accepts = matcher
        with self._mutex:
            self._rules.insert(0, (accepts, list(replies)))

    def chats(self) -> list[Call]:
        """The calls of the chat endpoint."""
        return [call for call in self.calls if call.path.endswith("/chat/completions")]

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._connection, "127.0.0.1", 0, limit=32 * 1024 * 1024)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        self._loop.run_forever()
        server.close()
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.close()

    def _next_reply(self, call: Call) -> Reply:
        with self._mutex:
            self.calls.append(call)
            for matcher, replies in self._rules:
                if matcher(call):
                    return replies.pop(0) if len(replies) > 1 else replies[0]
        return self._default

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                call = await _read_request(reader)
                if call is None or not await self._answer(call, reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return  # the client left, or `stop` ends this connection
        finally:
            writer.close()

    async def _answer(
        self, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one call; whether the connection may be used again."""
        work = asyncio.ensure_future(self._respond(call, writer))
        # A client sends nothing before it has its answer: what can arrive is its end of file.
        gone = asyncio.ensure_future(_wait_for_end(reader))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                call.disconnected_at = monotonic()
                return False
            return await work
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            call.ended.set()

    async def _respond(self, call: Call, writer: asyncio.StreamWriter) -> bool:
        if call.path.endswith("/models"):
            data = [{"id": self.model, "object": "model", "created": 0, "owned_by": "tests"}]
            await _send(writer, 200, _dump({"object": "list", "data": data}))
            return True
        reply = self._next_reply(call)
        await asyncio.sleep(reply.delay_s)
        while reply.gate is not None and not reply.gate.is_set():  # noqa: ASYNC110 - a thread's
            await asyncio.sleep(0.02)
        if reply.status != 200:
            error = {"message": reply.error, "type": "scripted", "code": reply.status}
            await _send(writer, reply.status, _dump({"error": error}), reply.headers)
        elif reply.body is not None:
            await _send(writer, 200, reply.body, reply.headers)
        elif call.path.endswith("/embeddings"):
            status, answer = self.embeddings.answer(call.json)
            await _send(writer, status, _dump(answer), reply.headers)
        elif call.stream:
            return await self._stream(call, reply, writer)
        else:
            await _send(writer, 200, _dump(self._completion(call, reply)), reply.headers)
        return True

    def _completion(self, call: Call, reply: Reply) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(reply.pieces) or None}
        if reply.tool_calls:
            message["tool_calls"] = _tool_calls(reply.tool_calls)
        finish = "tool_calls" if reply.tool_calls else "stop"
        answer: dict[str, Any] = {
            "id": "chatcmpl-fake",
            "object": "chat.completion",
            "created": 0,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
        if reply.usage:
            answer["usage"] = _usage(call, reply)
        return answer

    async def _stream(self, call: Call, reply: Reply, writer: asyncio.StreamWriter) -> bool:
        await _send_head(writer, 200, (*reply.headers, ("content-type", "text/event-stream")))
        deltas: list[dict[str, Any]] = [{"content": piece} for piece in reply.pieces]
        for index, one in enumerate(_tool_calls(reply.tool_calls)):
            deltas.append({"tool_calls": [{"index": index, **one}]})
        for sent, delta in enumerate(deltas):
            if reply.cut_after is not None and sent >= reply.cut_after:
                writer.transport.abort()
                return False
            await _send_chunk(writer, _event(self._delta(delta)))
            await asyncio.sleep(reply.piece_delay_s)
        if reply.cut_after is not None:
            writer.transport.abort()
            return False
        finish = "tool_calls" if reply.tool_calls else "stop"
        await _send_chunk(writer, _event(self._delta({}, finish)))
        if reply.usage:
            last = {**self._delta({}), "choices": [], "usage": _usage(call, reply)}
            await _send_chunk(writer, _event(last))
        await _send_chunk(writer, b"data: [DONE]\n\n")
        await _send_chunk(writer, b"")
        return True

    def _delta(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {
            "id": "chatcmpl-fake",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": self.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }


def _any(_: Call) -> bool:
    return True


def _containing(needle: str) -> Matcher:
    def accepts(call: Call) -> bool:
        return needle in call.text

    return accepts


def _content(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)


def _tool_calls(calls: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for index, (name, arguments) in enumerate(calls)
    ]


def _usage(call: Call, reply: Reply) -> dict[str, int]:
    prompt, completion = len(call.text), sum(map(len, reply.pieces))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _event(value: object) -> bytes:
    return b"data: " + _dump(value) + b"\n\n"


async def _read_request(reader: asyncio.StreamReader) -> Call | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    request_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return Call(path=request_line.split()[1].partition("?")[0], headers=headers, raw=raw)


async def _wait_for_end(reader: asyncio.StreamReader) -> None:
    while not reader.at_eof():  # noqa: ASYNC110 - the reader has no event for it
        # Not `read`: a pipelined request must stay in the buffer.
        await asyncio.sleep(0.02)


async def _send_head(writer: asyncio.StreamWriter, status: int, headers: Headers) -> None:
    lines = [f"HTTP/1.1 {status} Scripted", "transfer-encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in headers]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    await writer.drain()


async def _send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


async def _send(
    writer: asyncio.StreamWriter, status: int, body: bytes, headers: Headers = ()
) -> None:
    given = {name for name, _ in headers}
    kind = () if "content-type" in given else (("content-type", "application/json"),)
    await _send_head(writer, status, (*headers, *kind))
    if body:
        await _send_chunk(writer, body)
    await _send_chunk(writer, b"")
