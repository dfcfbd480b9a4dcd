"""What the machine allows: a bare gRPC server that answers the same AppendTurn and stores nothing,
and the CPU time that an append costs each process."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Any

import grpc.aio
import psutil

from nianlun.memory.v1 import memory_pb2 as pb
from nianlun.memory.v1 import memory_pb2_grpc


class Bare(memory_pb2_grpc.MemoryServiceServicer):
    """Reads the request, answers as the service does, does nothing else."""

    async def AppendTurn(
        self, request: pb.AppendTurnRequest, context: Any
    ) -> pb.AppendTurnResponse:
        """A receipt of nothing."""
        return pb.AppendTurnResponse(
            turn_id=request.request_id, sequence=1, position="p1.1.0", job_id=request.request_id
        )


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children, ended ones included."""
    process = psutil.Process(pid)
    own = process.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            total += times.user + times.system
    return float(total)


async def _serve(port: int) -> None:
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    # The servicer answers one method; the generated base refuses the others.
    memory_pb2_grpc.add_MemoryServiceServicer_to_server(Bare(), server)  # type: ignore[abstract]
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
