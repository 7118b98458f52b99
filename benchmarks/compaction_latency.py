"""p99 of small produces with and without the cleaner at work, in turn.

    python -m benchmarks.compaction_latency [--mb 150] [--seconds 40]

Compacted topics are filled, then one small record after the other is produced to another topic.
Each second the cleaner process is stopped (SIGSTOP) or goes on, so that both halves meet the same
machine; seconds in which more than one percent of the machine was stolen do not count.
"""

import argparse
import os
import random
import signal
import statistics
import tempfile
import time
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.process import BrokerProcess, until

TOPICS = 3
WINDOW_S, PAUSE_S = 1.0, 0.001
STOLEN_MAX = 0.01


def fill(bootstrap: str, topic: str, size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    dice = random.Random(topic)
    for _ in range(size // 100):
        key, value = b"key-%d" % dice.randrange(size // 500), dice.randbytes(70)
        while True:
            try:
                producer.produce(topic, key=key, value=value, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush(120)


def cleaner_of(broker: BrokerProcess) -> int:
    for child in psutil.Process(broker.pid).children():
        if "local_log.cleaner.process" in " ".join(child.cmdline()):
            return child.pid
    return 0


def window(producer: Producer) -> list[float]:
    """Milliseconds of each produce of one window."""
    times, end = [], time.perf_counter() + WINDOW_S
    while (began := time.perf_counter()) < end:
        producer.produce("probed", b"x" * 100, partition=0)
        producer.flush(30)
        times.append((time.perf_counter() - began) * 1_000)
        time.sleep(PAUSE_S)
    return times


def stolen(before: tuple[float, ...], after: tuple[float, ...]) -> float:
    steal = psutil.cpu_times()._fields.index("steal")
    return float(after[steal] - before[steal]) / max(sum(after) - sum(before), 1e-9)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--mb", type=int, default=150)
    parser.add_argument("--seconds", type=int, default=40)
    given = parser.parse_args()
    settings = {"log.cleaner.backoff.ms": "100"}
    broker = BrokerProcess(Path(tempfile.mkdtemp(prefix="latency-")), settings=settings)
    try:
        broker.start()
        client = AdminClient({"bootstrap.servers": broker.bootstrap})
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        compacted["segment.bytes"] = str(16 << 20)
        names = [f"table-{number}" for number in range(TOPICS)]
        new = [NewTopic(name, 1, 1, config=compacted) for name in names]
        for done in client.create_topics([*new, NewTopic("probed", 1, 1)]).values():
            done.result(30)
        for name in names:
            fill(broker.bootstrap, name, given.mb * 1_000_000 // TOPICS)
            if pid := cleaner_of(broker):
                os.kill(pid, signal.SIGSTOP)
        pid = until(lambda: cleaner_of(broker), "the cleaner works")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        window(producer)
        measure(pid, producer, given.seconds)
    finally:
        broker.close()


def measure(pid: int, producer: Producer, seconds: int) -> None:
    p99: dict[bool, list[float]] = {True: [], False: []}
    worked = 0.0
    for number in range(seconds):
        goes_on = number % 2 == 1
        os.kill(pid, signal.SIGCONT if goes_on else signal.SIGSTOP)
        cpu, machine = psutil.Process(pid).cpu_times().user, tuple(psutil.cpu_times())
        times = window(producer)
        used = psutil.Process(pid).cpu_times().user - cpu
        worked += used
        is_busy = used > 0.3 * WINDOW_S
        if goes_on and not is_busy:
            break  # it has done all
        if stolen(machine, tuple(psutil.cpu_times())) <= STOLEN_MAX:
            p99[goes_on].append(statistics.quantiles(times, n=100)[98])
    os.kill(pid, signal.SIGCONT)
    for goes_on, found in p99.items():
        if found:
            print(
                f"cleaner {'works' if goes_on else 'stopped'}: {len(found)} windows, "
                f"p99 median {statistics.median(found):.2f} ms, least {min(found):.2f} ms"
            )
    print(f"CPU of the cleaner {worked:.1f} s")


if __name__ == "__main__":
    main()
