"""Runs the same work on Tidemark and on Apache Kafka side by side and prints a table of ratios.

    python -m benchmarks.compare [--mb 512] [--only produce_raw,...] [--rounds 2] [--repeat 1]

Figures are the last (warm) round's. `--repeat` runs the pair several times and quotes medians.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import brokers

HIGHER_IS_BETTER = {"mb_per_s", "per_s"}


def measure(running: brokers.Running, options: argparse.Namespace) -> dict[str, float]:
    """Figures of one run as `work.figure` -> value."""
    command = [sys.executable, str(brokers.peers() / "measure"), "--bootstrap", running.bootstrap]
    command += ["--pid", str(running.pid), "--mb", str(options.mb), "--rounds", str(options.rounds)]
    command += ["--only", options.only] if options.only else []
    command += [] if options.no_tier else ["--tiered"]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    flat: dict[str, float] = {}
    for work, figures in json.loads(answer.stdout)["results"].items():
        if not isinstance(figures, dict):
            flat[work] = figures
            continue
        for name, value in figures.items():
            if isinstance(value, dict):
                flat |= {f"{work}.{name}.{inner}": number for inner, number in value.items()}
            elif name not in ("mb", "seconds"):
                flat[f"{work}.{name}"] = value
    return flat


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--no-tier", action="store_true")
    options = parser.parse_args()
    figures: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        for _ in range(options.repeat):
            for label, start in (("tidemark", brokers.tidemark), ("kafka", brokers.kafka)):
                with start(Path(scratch) / label, tiered=not options.no_tier) as running:
                    for name, value in measure(running, options).items():
                        figures.setdefault(name, {}).setdefault(label, []).append(value)
    print(f"{'figure':45} {'tidemark':>10} {'kafka':>10} {'ratio':>7}")
    for name, by_label in figures.items():
        ours = statistics.median(by_label.get("tidemark", [float("nan")]))
        theirs = statistics.median(by_label.get("kafka", [float("nan")]))
        ratio = ours / theirs if theirs else float("nan")
        print(f"{name:45} {ours:10.3f} {theirs:10.3f} {ratio:7.2f}")


if __name__ == "__main__":
    main()
