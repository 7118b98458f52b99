"""Measures seconds from start to the first Metadata answer, and idle memory of all processes.

    python -m benchmarks.startup [--runs 5]

Prints a row for a plain broker and one with the tier on.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks import brokers


def resident_mb(pid: int) -> float:
    """Resident memory of a process and its children, in MB of 10^6 bytes."""
    process = psutil.Process(pid)
    return sum(p.memory_info().rss for p in [process, *process.children(recursive=True)]) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--idle-s", type=float, default=10, help="how long the broker idles before memory is read"
    )
    options = parser.parse_args()
    print(f"{'broker':20} {'ready_s min':>12} {'median':>8} {'max':>8} {'idle MB':>8}")
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        for label, tiered in (("plain", False), ("with the tier", True)):
            seconds, memory = [], 0.0
            for run in range(options.runs):
                with brokers.tidemark(Path(scratch) / "data", tiered=tiered) as running:
                    seconds.append(running.seconds_to_ready)
                    if run == options.runs - 1:
                        time.sleep(options.idle_s)
                        memory = resident_mb(running.pid)
            print(
                f"{label:20} {min(seconds):12.3f} {statistics.median(seconds):8.3f} "
                f"{max(seconds):8.3f} {memory:8.0f}"
            )


if __name__ == "__main__":
    main()
