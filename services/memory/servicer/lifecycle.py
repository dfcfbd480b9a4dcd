"""RPCs of erasure, export and import."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import grpc.aio

from nianlun.memory.v1 import memory_pb2 as pb
from services.common import errors, validate
from services.common.db import Connection
from services.memory import convert, threads, transfer
from services.memory.domain import Receipt
from services.memory.erase import Eraser, ended_job
from services.memory.servicer import base

Context = grpc.aio.ServicerContext[object, object]
_LINES: Final = 100
_MAX_LINES: Final = 200
_MAX_LINE_BYTES: Final = 256 * 1024
_MAX_IMPORT_LINES: Final = 200_000
_MAX_IMPORT_BYTES: Final = 64 * 1024 * 1024


class LifecycleRpcs(base.Rpcs):
    """EraseUser, EraseSession, ExportUser, ImportUser."""

    async def EraseUser(
        self, request: pb.EraseUserRequest, context: Context
    ) -> pb.EraseUserResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        tenant_id, user_id = base.tenant(), base.user(request.user_id)

        async def run(conn: Connection) -> pb.EraseUserResponse:
            receipt = await Eraser(self.deps).user(conn, tenant_id, user_id)
            out = pb.EraseUserResponse(receipt=convert.receipt(receipt))
            await _with_job(conn, "erase_user", receipt, out)
            return out

        return await self.write(request, pb.EraseUserResponse, run, "")

    async def EraseSession(
        self, request: pb.EraseSessionRequest, context: Context
    ) -> pb.EraseSessionResponse:
        """See the contract."""
        validate.request_id(request.request_id)
        tenant_id, user_id = base.tenant(), base.user(request.user_id)
        session_id = base.session(request.session_id)

        async def run(conn: Connection) -> pb.EraseSessionResponse:
            receipt = await Eraser(self.deps).session(conn, tenant_id, user_id, session_id)
            out = pb.EraseSessionResponse(receipt=convert.receipt(receipt))
            await _with_job(conn, "erase_session", receipt, out)
            return out

        return await self.write(request, pb.EraseSessionResponse, run, "")

    async def ExportUser(
        self, request: pb.ExportUserRequest, context: Context
    ) -> AsyncIterator[pb.ExportUserResponse]:
        """See the contract."""
        user_id = base.user(request.user_id)
        async with self.deps.db.tenant() as conn:
            lines = await transfer.export(conn, user_id)
        for start in range(0, len(lines), _LINES):
            yield pb.ExportUserResponse(lines=lines[start : start + _LINES])

    async def ImportUser(
        self, request_iterator: AsyncIterator[pb.ImportUserRequest], context: Context
    ) -> pb.ImportUserResponse:
        """See the contract."""
        header: pb.ImportHeader | None = None
        lines: list[str] = []
        size = 0
        async for message in request_iterator:
            if message.HasField("header"):
                if header is not None:
                    raise errors.invalid_argument("header", "must be sent once, first")
                header = message.header
                continue
            if header is None:
                raise errors.invalid_argument("header", "must come first")
            validate.count("lines", message.lines.lines, _MAX_LINES)
            for number, line in enumerate(message.lines.lines, len(lines)):
                if len(line.encode()) > _MAX_LINE_BYTES:
                    raise errors.invalid_argument(f"lines[{number}]", "is longer than 256 KiB")
                size += len(line.encode())
            if size > _MAX_IMPORT_BYTES:
                raise errors.invalid_argument("lines", "must be at most 64 MiB together")
            lines.extend(message.lines.lines)
            if len(lines) > _MAX_IMPORT_LINES:
                raise errors.invalid_argument("lines", f"must be at most {_MAX_IMPORT_LINES}")
        if header is None:
            raise errors.invalid_argument("header", "is required")
        validate.request_id(header.request_id)
        return await self._import(header, lines)

    async def _import(self, header: pb.ImportHeader, lines: list[str]) -> pb.ImportUserResponse:
        tenant_id, user_id = base.tenant(), base.user(header.user_id)
        records = await threads.by_size(sum(map(len, lines)), lambda: transfer.parse(lines))

        async def run(conn: Connection) -> pb.ImportUserResponse:
            counts = await transfer.restore(self.deps, conn, tenant_id, user_id, records)
            return pb.ImportUserResponse(stored=counts.stored, skipped=counts.skipped)

        return await self.write(header, pb.ImportUserResponse, run, "")


async def _with_job(
    conn: Connection,
    kind: str,
    receipt: Receipt,
    out: pb.EraseUserResponse | pb.EraseSessionResponse,
) -> None:
    out.job.CopyFrom(await base.job_of(conn, await ended_job(conn, kind, receipt)))
