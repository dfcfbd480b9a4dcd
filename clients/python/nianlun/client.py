"""The blocking client; ``nianlun.aio.AsyncClient`` is its twin, both bind one set of helpers."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import grpc
from google.protobuf.message import Message as ProtoMessage

from nianlun import jobs
from nianlun.common.v1 import common_pb2
from nianlun.connection import Connection, headers, identify
from nianlun.embedder.v1.embedder_pb2_grpc import EmbedderServiceStub
from nianlun.ending import Ending
from nianlun.errors import from_rpc_error
from nianlun.memory.v1 import memory_pb2 as memory
from nianlun.memory.v1.memory_pb2_grpc import MemoryServiceStub
from nianlun.methods import Methods
from nianlun.operations import background, chats
from nianlun.operations.core import Operation
from nianlun.orchestrator.v1 import orchestrator_pb2 as orchestrator
from nianlun.orchestrator.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from nianlun.patience import Patience
from nianlun.retriever.v1 import retriever_pb2 as retriever
from nianlun.retriever.v1.retriever_pb2_grpc import RetrieverServiceStub
from nianlun.values import new_request_id

P = ParamSpec("P")
Response = TypeVar("Response", bound=ProtoMessage)


class Client(Methods):
    """Calls the four services. Thread-safe. Use as a context manager, or ``close`` it.

    There is a method for every RPC; each raises ``nianlun.errors.NianlunError`` when it fails.
    The generated stubs (``client.memory``, ``client.retriever``, ...) carry the same key, deadline
    and retries for requests that are built by hand; they raise ``grpc.RpcError``.

    Args:
        target: one address for all services, or a mapping of service to address; the environment
            (NIANLUN_MEMORY_TARGET, ...) and the default ports fill what is left out.
        key: the bearer key; NIANLUN_KEY by default.
        timeout_s: deadline of unary calls in seconds.
        stream_timeout_s: deadline of chats (streamed or not), exports, imports and job watching, in
            seconds; 180 by default, or ``timeout_s`` where that is longer.
        tls: use TLS; ``root_certificates`` (PEM) name the authority.
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
    def local(cls, home: str | Path | None = None) -> Client:
        """A client of the stack that `make serve` started."""
        return cls.of(Connection.local(home))

    @classmethod
    def of(cls, connection: Connection) -> Client:
        """A client over a connection that was described elsewhere."""
        client = cls.__new__(cls)
        client._open(connection)
        return client

    def _open(self, connection: Connection) -> None:
        self.connection = connection
        self._channels = {name: _channel(connection, name) for name in connection.targets}
        self.embedder = EmbedderServiceStub(self._channels["embedder"])
        self.retriever = RetrieverServiceStub(self._channels["retriever"])
        self.memory = MemoryServiceStub(self._channels["memory"])
        self.orchestrator = OrchestratorServiceStub(self._channels["orchestrator"])

    def with_timeout(self, timeout_s: float) -> Client:
        """This client with another deadline, in seconds; both share their channels."""
        twin = copy.copy(self)
        twin.connection = self.connection.with_timeout(timeout_s)
        return twin

    def close(self) -> None:
        """Close the channels; calls under way fail."""
        for channel in self._channels.values():
            channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def call(
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
            response: Response = getattr(stub, operation.rpc)(
                request,
                timeout=self.connection.timeout_of(operation),
                metadata=headers(request_id, key),
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error, request_id) from None
        return response

    def bind(self, operation: Operation[P, Response]) -> Callable[P, Response]:
        """The operation as a function that sends it."""

        def send(*args: P.args, **kwargs: P.kwargs) -> Response:
            return self.call(operation, operation.build(*args, **kwargs))

        return send

    def stream_chat(
        self, asked: orchestrator.ChatInput, *, request_id: str | None = None
    ) -> ChatStream:
        """Stream the events of one chat; leaving the ``with`` block cancels what is under way."""
        request = chats.stream_chat(asked, request_id=request_id)
        return ChatStream(self._streaming(self.orchestrator.StreamChat, request))

    def export_user(self, user_id: str) -> Iterator[str]:
        """Everything stored about a user as JSON lines, in a stable order, as they arrive."""
        request = memory.ExportUserRequest(user_id=user_id)
        for message in _read(self._streaming(self.memory.ExportUser, request)):
            yield from message.lines

    def import_user(
        self, user_id: str, lines: Iterable[str], *, request_id: str | None = None
    ) -> memory.ImportUserResponse:
        """Take the lines of an export; what exists already stays as it is. All or nothing."""
        known = request_id or new_request_id()
        messages = background.import_messages(user_id, lines, known)
        try:
            return self.memory.ImportUser(
                messages, timeout=self.connection.stream_timeout_s, metadata=headers(known)
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error, known) from None

    def watch_memory_job(self, job_id: str) -> Iterator[common_pb2.Job]:
        """A job of the memory service at every change, until it has ended."""
        request = memory.WatchJobRequest(job_id=job_id)
        for message in _read(self._streaming(self.memory.WatchJob, request)):
            yield message.job

    def watch_retriever_job(self, job_id: str) -> Iterator[common_pb2.Job]:
        """A job of the retriever at every change, until it has ended."""
        request = retriever.WatchJobRequest(job_id=job_id)
        for message in _read(self._streaming(self.retriever.WatchJob, request)):
            yield message.job

    def _streaming(self, method: Any, request: ProtoMessage) -> _Call:
        request_id = identify(request)
        timeout_s = self.connection.stream_timeout_s
        call = method(request, timeout=timeout_s, metadata=headers(request_id))
        return _Call(call, request_id)

    def wait_job(
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
            time.sleep(pause)
            job = jobs.job_of(self.call(look, look.build(job.job_id)))
        raise AssertionError("pauses never end")


@dataclass(frozen=True)
class _Call:
    """A streaming call under way, and the request id that it was sent with."""

    messages: Any
    request_id: str


class ChatStream:
    """The events of one chat, in order; the last is ``completed``. Leaving a loop early cancels."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._ending = Ending()

    @property
    def response(self) -> orchestrator.ChatResponse | None:
        """The whole answer, once ``completed`` has arrived; None for a run without an answer."""
        return self._ending.response

    def __iter__(self) -> Iterator[orchestrator.ChatEvent]:
        for message in _read(self._call):
            self._ending.see(message.event)
            yield message.event

    def answer(self) -> orchestrator.ChatResponse:
        """Read what is left and give the whole answer.

        Raises:
            RunFailedError: the run ended without an answer.
        """
        if not self._ending.reached:
            for _event in self:
                pass
        return self._ending.answer()

    def __enter__(self) -> ChatStream:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """End the call; the service stops working on it."""
        self._call.messages.cancel()


def _read(call: _Call) -> Iterator[Any]:
    """The messages of a stream, with typed errors."""
    try:
        yield from call.messages
    except grpc.RpcError as error:
        raise from_rpc_error(error, call.request_id) from None
    finally:
        # Leaving a loop early does not end a gRPC call by itself.
        call.messages.cancel()


def _channel(connection: Connection, service: str) -> grpc.Channel:
    credentials = connection.credentials()
    if credentials is None:
        channel = grpc.insecure_channel(connection.uri(service), connection.options())
    else:
        channel = grpc.secure_channel(connection.uri(service), credentials, connection.options())
    return grpc.intercept_channel(channel, _Defaults(connection))


@dataclass(frozen=True)
class _Details(grpc.ClientCallDetails):
    """The details of a call with the client's defaults filled in."""

    method: str
    timeout: float | None
    metadata: tuple[tuple[str, str | bytes], ...] | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _Defaults(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
):
    """Gives every call the key, a request id, and a deadline where it has none; those that may be
    repeated wait for a service that was there before."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._patience = Patience()

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """Unary calls, with the deadline of unary calls."""
        filled = self._fill(details, request, self._connection.timeout_s)
        return self._patience.watch(continuation(filled, request))

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        """Chats, exports and job watching, with the deadline of streams."""
        filled = self._fill(details, request, self._connection.stream_timeout_s)
        return self._patience.watch(continuation(filled, request))

    def intercept_stream_unary(self, continuation: Any, details: Any, requests: Any) -> Any:
        """Imports, with the deadline of streams."""
        filled = self._fill(details, None, self._connection.stream_timeout_s)
        return self._patience.watch(continuation(filled, requests))

    def _fill(self, details: Any, request: Any, timeout_s: float) -> _Details:
        return _Details(
            method=details.method,
            timeout=timeout_s if details.timeout is None else details.timeout,
            metadata=tuple(self._connection.metadata(request, details.metadata or ())),
            credentials=details.credentials,
            wait_for_ready=self._patience.waits(details.method, details.wait_for_ready),
            compression=details.compression,
        )
