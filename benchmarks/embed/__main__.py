"""`python -m benchmarks.embed [part ...]`: all parts, or those named. QUICK=1: under 5 minutes."""

from __future__ import annotations

import os
import sys
import time

# Before any of the libraries that read them.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from benchmarks.embed import parts
from benchmarks.report import Report, command_line

PARTS = {
    "default_model": parts.default_model,
    "overhead": parts.overhead,
    "throughput": parts.throughput,
    "mixed_lengths": parts.mixed_lengths,
    "query_latency": parts.query_latency,
    "churn": parts.churn,
    "late_interaction": parts.late_interaction,
}


def main() -> int:
    """Run the parts; exit code 0 even when a figure is short, so that all of them are shown."""
    wanted = sys.argv[1:] or list(PARTS)
    name = "embed" if wanted == list(PARTS) else "embed-" + "-".join(wanted)
    report = Report(name, command_line("benchmarks.embed"))
    for name in wanted:
        print(f"== {name}", flush=True)
        began = time.perf_counter()
        PARTS[name](report)
        report.details[f"{name} took s"] = round(time.perf_counter() - began, 1)
        # After each part: a run that is cut short still shows what it measured.
        report.write()
    print("== figures")
    for item in report.figures:
        print(item)
    return 0


if __name__ == "__main__":
    sys.exit(main())
