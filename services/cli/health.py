"""`python -m services.cli.health TARGET`: exit code 0 when a server is ready; for container checks.

TARGET is host:port of a gRPC server, or an http:// address. It loads little, so that it is quick.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_TIMEOUT_S = 3.0


def grpc_serving(target: str, timeout_s: float = _TIMEOUT_S) -> bool:
    """Whether the server at host:port reports SERVING."""
    # A channel per look: no connection back-off while the server is still starting.
    with grpc.insecure_channel(target) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=timeout_s
            )
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def http_ready(url: str, timeout_s: float = _TIMEOUT_S) -> bool:
    """Whether an http(s) address answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def main() -> int:
    """Check the one target of the command line."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m services.cli.health HOST:PORT | http://HOST:PORT/PATH\n")
        return 2
    target = sys.argv[1]
    ready = http_ready(target) if "://" in target else grpc_serving(target)
    if not ready:
        sys.stderr.write(f"{target} is not ready\n")
    return 0 if ready else 1


if __name__ == "__main__":
    sys.exit(main())
