"""From the start of pytest to the first record that the broker of its fixture has acknowledged.

    python -m benchmarks.pytest_start [--runs 10]

Each run is a pytest process of its own with one test, which takes `tidemark_broker` and
`kafka_topic`, produces a record and waits for its acknowledgement. A line a run, then the median.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUITE = """
import time

def test_first_record(tidemark_broker, kafka_topic):
    started = time.monotonic()
    producer = tidemark_broker.producer()
    producer.produce(kafka_topic, b"first")
    assert producer.flush(30) == 0
    print(f"PRODUCED {time.monotonic()} {started}")
"""


def measure(directory: Path) -> tuple[float, float]:
    """Seconds to the first record; and of them, with the broker running and the topic there."""
    environment = dict(os.environ, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTHONPATH=str(ROOT))
    plugins = ("-p", "tidemark.pytest_plugin", "-p", "no:cacheprovider")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", *plugins],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    line = next((one for one in done.stdout.splitlines() if "PRODUCED" in one), None)
    if done.returncode or line is None:
        raise SystemExit(done.stdout + done.stderr)
    produced, started = map(float, line.split()[-2:])
    return produced - began, produced - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as root:
        directory = Path(root)
        (directory / "test_first.py").write_text(SUITE)
        (directory / "pytest.ini").write_text("[pytest]\n")
        measure(directory)  # byte code and page cache
        found = []
        for number in range(given.runs):
            whole, produce = measure(directory)
            print(f"run {number + 1}: {whole:.2f} s, of it produce {produce:.2f} s", flush=True)
            found.append(whole)
    print(f"median {statistics.median(found):.2f} s, worst {max(found):.2f} s of {len(found)} runs")


if __name__ == "__main__":
    main()
