"""`python -m benchmarks.chaos_memory`: the fault run of the memory service."""

from __future__ import annotations

import sys

from benchmarks.memory.chaos import main

if __name__ == "__main__":
    sys.exit(main())
