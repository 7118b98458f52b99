"""p99 of small produces to one topic while another is loaded with 20 MB/s.

    python -m benchmarks.produce_latency BOOTSTRAP LOADED_TOPIC PROBED_TOPIC

Prints {"p50_ms": .., "p99_ms": ..}. A process of its own: the load would hold the lock that the
probe needs.
"""

import json
import os
import statistics
import subprocess
import sys
import time

from confluent_kafka import Producer

PROBES, PAUSE_S = 6_000, 0.001
LOAD_BYTES_PER_S = 20_000_000


def load(bootstrap: str, topic: str) -> None:
    """Produce at a steady rate until killed."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    value, began, sent = os.urandom(10_000), time.monotonic(), 0
    while True:
        producer.produce(topic, value, partition=sent // len(value) % 2)
        sent += len(value)
        producer.poll(0)
        ahead = sent / LOAD_BYTES_PER_S - (time.monotonic() - began)
        if ahead > 0.01:
            time.sleep(ahead)


def probe(bootstrap: str, topic: str) -> dict[str, float]:
    """One small record at a time, acknowledged before the next."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    times = []
    for number in range(PROBES + 200):
        began = time.perf_counter()
        producer.produce(topic, b"x" * 100, partition=0)
        producer.flush(30)
        if number >= 200:
            times.append((time.perf_counter() - began) * 1_000)
        time.sleep(PAUSE_S)
    q = statistics.quantiles(times, n=100)
    return {"p50_ms": round(q[49], 3), "p99_ms": round(q[98], 3)}


def main() -> None:
    bootstrap, loaded, probed = sys.argv[1:4]
    if probed == "--load":
        load(bootstrap, loaded)
    busy = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.produce_latency", bootstrap, loaded, "--load"]
    )
    try:
        print(json.dumps(probe(bootstrap, probed)))
    finally:
        busy.kill()
        busy.wait(10)


if __name__ == "__main__":
    main()
