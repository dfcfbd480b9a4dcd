"""`python -m nianlun_mcp.health URL`: exit code 0 when the server answers; for container checks."""

from __future__ import annotations

import http.client
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence

_TIMEOUT_S = 3.0


def ready(url: str, timeout_s: float = _TIMEOUT_S) -> bool:
    """Whether an http(s) address answers 200 within ``timeout_s`` seconds."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, http.client.HTTPException, OSError):
        return False


def main(arguments: Sequence[str]) -> int:
    """Check the one address of the command line."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m nianlun_mcp.health http://HOST:PORT/healthz\n")
        return 2
    if ready(arguments[0]):
        return 0
    sys.stderr.write(f"{arguments[0]} is not ready\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
