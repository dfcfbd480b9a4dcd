"""`python -m benchmarks.memory [part ...]`: all parts, or those named."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from benchmarks.memory import injection, plot, recall, speed, updates
from benchmarks.report import Report, command_line

PARTS: dict[str, Callable[[Report], None]] = {
    "injection": injection.run,
    "updates": updates.run,
    "recall": recall.run,
    "speed": speed.run,
}


def main() -> int:
    """Run the parts; exit code 0 even when a figure is short, so that all of them are shown."""
    wanted = sys.argv[1:] or list(PARTS)
    name = "memory" if wanted == list(PARTS) else "memory-" + "-".join(wanted)
    report = Report(name, command_line("benchmarks.memory"))
    for name in wanted:
        print(f"== {name}", flush=True)
        started = time.perf_counter()
        PARTS[name](report)
        report.details[f"{name}_s"] = round(time.perf_counter() - started, 1)
    report.write(plot.bars(report.figures))
    print("== figures")
    for item in report.figures:
        print(item)
    return 0


if __name__ == "__main__":
    sys.exit(main())
