"""`python -m benchmarks.memory [part ...]`: all parts, or those named."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from benchmarks.memory import injection, recall, speed, updates
from benchmarks.memory.report import Report

PARTS: dict[str, Callable[[Report], None]] = {
    "injection": injection.run,
    "updates": updates.run,
    "recall": recall.run,
    "speed": speed.run,
}


def main() -> int:
    """Run the parts; exit code 0 even when a figure is short, so that all of them are shown."""
    wanted = sys.argv[1:] or list(PARTS)
    report = Report("memory" if wanted == list(PARTS) else "memory-" + "-".join(wanted))
    for name in wanted:
        print(f"== {name}", flush=True)
        started = time.perf_counter()
        PARTS[name](report)
        report.details[f"{name}_s"] = round(time.perf_counter() - started, 1)
    report.write()
    print("== figures")
    for item in report.figures:
        limit = "-" if item["limit"] is None else f"{item['limit']:g}"
        mark = "ok" if item["ok"] else "short"
        print(f"figure {item['name']} {item['value']:.4g} {limit} {mark}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
