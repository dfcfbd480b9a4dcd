"""The asyncio client, twin of ``nianlun.client.Client``; it belongs to the loop that made it."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
)
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import grpc
from google.protobuf.message import Message as ProtoMessage

from nianlun import jobs
from nianlun.common.v1 import common_pb2
from nianlun.connection import Connection, headers, identify
from nianlun.embedder.v1 import embedder_pb2_grpc
from nianlun.ending import Ending
from nianlun.errors import from_rpc_error
from nianlun.memory.v1 import memory_pb2 as memory
from nianlun.memory.v1 import memory_pb2_grpc
from nianlun.methods import Methods
from nianlun.operations import background, chats
from nianlun.operations.core import Operation
from nianlun.orchestrator.v1 import orchestrator_pb2 as orchestrator
from nianlun.orchestrator.v1 import orchestrator_pb2_grpc
from nianlun.patience import Patience
from nianlun.retriever.v1 import retriever_pb2 as retriever
from nianlun.retriever.v1 import retriever_pb2_grpc
from nianlun.values import new_request_id

P = ParamSpec("P")
Response = TypeVar("Response", bound=ProtoMessage)


class AsyncClient(Methods):
    """Calls the four services from one event loop. Use it in ``async with``, or ``close`` it.

    The same as ``Client`` in every other respect; see there.
    """

    def __init__(
        self,
        target: str | Mapping[str, str] | None = None,
        *,
        key: str | None = None,
        timeout_s: float = 30.0,
        stream_timeout_s: float | None = None,
        tls: bool = False,
        root_certificates: bytes | None = None,
    ) -> None:
        self._open(
            Connection.of(
                target,
                key=key,
                timeout_s=timeout_s,
                stream_timeout_s=stream_timeout_s,
                tls=tls,
                root_certificates=root_certificates,
            )
        )

    @classmethod
    def local(cls, home: str | Path | None = None) -> AsyncClient:
        """A client of the stack that `make serve` started."""
        return cls.of(Connection.local(home))

    @classmethod
    def of(cls, connection: Connection) -> AsyncClient:
        """A client over a connection that was described elsewhere."""
        client = cls.__new__(cls)
        client._open(connection)
        return client

    def _open(self, connection: Connection) -> None:
        self.connection = connection
        self._channels = {name: _channel(connection, name) for name in connection.targets}
        self.embedder: embedder_pb2_grpc.EmbedderServiceAsyncStub
        self.embedder = _stub(embedder_pb2_grpc.EmbedderServiceStub, self._channels["embedder"])
        self.retriever: retriever_pb2_grpc.RetrieverServiceAsyncStub
        self.retriever = _stub(retriever_pb2_grpc.RetrieverServiceStub, self._channels["retriever"])
        self.memory: memory_pb2_grpc.MemoryServiceAsyncStub
        self.memory = _stub(memory_pb2_grpc.MemoryServiceStub, self._channels["memory"])
        self.orchestrator: orchestrator_pb2_grpc.OrchestratorServiceAsyncStub
        self.orchestrator = _stub(
            orchestrator_pb2_grpc.OrchestratorServiceStub, self._channels["orchestrator"]
        )

    def with_timeout(self, timeout_s: float) -> AsyncClient:
        """This client with another deadline, in seconds; both share their channels."""
        twin = copy.copy(self)
        twin.connection = self.connection.with_timeout(timeout_s)
        return twin

    async def close(self, grace_s: float | None = None) -> None:
        """Close the channels; calls under way fail, after ``grace_s`` seconds where it is given."""
        await asyncio.gather(*(channel.close(grace_s) for channel in self._channels.values()))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def call(
        self,
        operation: Operation[P, Response],
        request: ProtoMessage,
        *,
        key: str | None = None,
    ) -> Response:
        """Send one request, what the methods do; ``key`` is another bearer key for this call."""
        stub = getattr(self, operation.service)
        request_id = identify(request)
        try:
            response: Response = await getattr(stub, operation.rpc)(
                request,
                timeout=self.connection.timeout_of(operation),
                metadata=headers(request_id, key),
            )
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, request_id) from None
        return response

    def bind(self, operation: Operation[P, Response]) -> Callable[P, Coroutine[Any, Any, Response]]:
        """The operation as a coroutine function that sends it."""

        async def send(*args: P.args, **kwargs: P.kwargs) -> Response:
            return await self.call(operation, operation.build(*args, **kwargs))

        return send

    def stream_chat(
        self, asked: orchestrator.ChatInput, *, request_id: str | None = None
    ) -> AsyncChatStream:
        """Stream the events of one chat; leaving the ``async with`` block cancels it."""
        request = chats.stream_chat(asked, request_id=request_id)
        return AsyncChatStream(self._streaming(self.orchestrator.StreamChat, request))

    async def export_user(self, user_id: str) -> AsyncIterator[str]:
        """Everything stored about a user as JSON lines, in a stable order, as they arrive."""
        request = memory.ExportUserRequest(user_id=user_id)
        async with aclosing(_read(self._streaming(self.memory.ExportUser, request))) as read:
            async for message in read:
                for line in message.lines:
                    yield line

    async def import_user(
        self, user_id: str, lines: Iterable[str], *, request_id: str | None = None
    ) -> memory.ImportUserResponse:
        """Take the lines of an export; what exists already stays as it is. All or nothing."""
        known = request_id or new_request_id()
        messages = background.import_messages(user_id, lines, known)
        try:
            return await self.memory.ImportUser(
                messages, timeout=self.connection.stream_timeout_s, metadata=headers(known)
            )
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, known) from None

    async def watch_memory_job(self, job_id: str) -> AsyncIterator[common_pb2.Job]:
        """A job of the memory service at every change, until it has ended."""
        request = memory.WatchJobRequest(job_id=job_id)
        async with aclosing(_read(self._streaming(self.memory.WatchJob, request))) as read:
            async for message in read:
                yield message.job

    async def watch_retriever_job(self, job_id: str) -> AsyncIterator[common_pb2.Job]:
        """A job of the retriever at every change, until it has ended."""
        request = retriever.WatchJobRequest(job_id=job_id)
        call = self._streaming(self.retriever.WatchJob, request)
        async with aclosing(_read(call)) as read:
            async for message in read:
                yield message.job

    def _streaming(self, method: Any, request: ProtoMessage) -> _Call:
        request_id = identify(request)
        timeout_s = self.connection.stream_timeout_s
        call = method(request, timeout=timeout_s, metadata=headers(request_id))
        return _Call(call, request_id)

    async def wait_job(
        self,
        answer: ProtoMessage,
        *,
        timeout_s: float = 60.0,
        progress: Callable[[common_pb2.Job], None] | None = None,
    ) -> common_pb2.Job:
        """Wait for the job in an answer (of ``upsert_documents``, ``end_session``, ...).

        Raises:
            JobFailedError: it failed, was cancelled, or has not ended in time (then it goes on).
        """
        look = jobs.get_job(answer)
        deadline = time.monotonic() + timeout_s
        job: common_pb2.Job = jobs.job_of(answer)
        for pause in jobs.pauses():
            if progress is not None:
                progress(job)
            if jobs.ended(job):
                return jobs.check(job)
            if time.monotonic() > deadline:
                raise jobs.late(job, timeout_s)
            await asyncio.sleep(pause)
            job = jobs.job_of(await self.call(look, look.build(job.job_id)))
        raise AssertionError("pauses never end")


@dataclass(frozen=True)
class _Call:
    """A streaming call under way, and the request id that it was sent with."""

    messages: Any
    request_id: str


class AsyncChatStream:
    """The events of one chat, in order; the last is ``completed``."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._ending = Ending()

    @property
    def response(self) -> orchestrator.ChatResponse | None:
        """The whole answer, once ``completed`` has arrived; None for a run without an answer."""
        return self._ending.response

    async def __aiter__(self) -> AsyncIterator[orchestrator.ChatEvent]:
        async with aclosing(_read(self._call)) as read:
            async for message in read:
                self._ending.see(message.event)
                yield message.event

    async def answer(self) -> orchestrator.ChatResponse:
        """Read what is left and give the whole answer.

        Raises:
            RunFailedError: the run ended without an answer.
        """
        if not self._ending.reached:
            async for _event in self:
                pass
        return self._ending.answer()

    async def __aenter__(self) -> AsyncChatStream:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """End the call; the service stops working on it."""
        self._call.messages.cancel()


async def _read(call: _Call) -> AsyncGenerator[Any, None]:
    """The messages of a stream, with typed errors."""
    try:
        async for message in call.messages:
            yield message
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, call.request_id) from None
    finally:
        # Leaving a loop early does not end a gRPC call by itself.
        call.messages.cancel()


def _stub(make: Callable[[Any], Any], channel: grpc.aio.Channel) -> Any:
    # One generated class serves both kinds of channel; only its type differs.
    return make(channel)


def _channel(connection: Connection, service: str) -> grpc.aio.Channel:
    defaults = _Defaults(connection)
    interceptors = [_UnaryUnary(defaults), _UnaryStream(defaults), _StreamUnary(defaults)]
    credentials = connection.credentials()
    if credentials is None:
        return grpc.aio.insecure_channel(
            connection.uri(service), connection.options(), interceptors=interceptors
        )
    return grpc.aio.secure_channel(
        connection.uri(service), credentials, connection.options(), interceptors=interceptors
    )


class _Defaults:
    """Gives every call the key, a request id, and a deadline where it has none; those that may be
    repeated wait for a service that was there before."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.patience = Patience()

    def fill(self, details: Any, request: Any, *, stream: bool) -> grpc.aio.ClientCallDetails:
        """The details of a call with the defaults filled in."""
        own = self._connection
        timeout_s = own.stream_timeout_s if stream else own.timeout_s
        return grpc.aio.ClientCallDetails(
            method=details.method,
            timeout=timeout_s if details.timeout is None else details.timeout,
            metadata=grpc.aio.Metadata(*own.metadata(request, details.metadata or ())),
            credentials=details.credentials,
            wait_for_ready=self.patience.waits(details.method, details.wait_for_ready),
        )


# grpc.aio wants one class a kind of call: an object that is several kinds is used for the first.
class _UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, defaults: _Defaults) -> None:
        self._defaults = defaults

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        filled = self._defaults.fill(details, request, stream=False)
        return self._defaults.patience.watch_async(await continuation(filled, request))


class _UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, defaults: _Defaults) -> None:
        self._defaults = defaults

    async def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        filled = self._defaults.fill(details, request, stream=True)
        return self._defaults.patience.watch_async(await continuation(filled, request))


class _StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
    def __init__(self, defaults: _Defaults) -> None:
        self._defaults = defaults

    async def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
        filled = self._defaults.fill(details, None, stream=True)
        return self._defaults.patience.watch_async(await continuation(filled, requests))
