"""p99 of small produces with and without the cleaner at work, in pairs of windows.

    python -m benchmarks.compaction_latency [--mb 150] [--pairs 40]

Compacted topics are filled, then one small record after the other is produced to another topic.
The map of keys has its smallest size, so that the cleaner works during the whole measurement. A
pair is two windows of a second in random order. In one of them the cleaner process is stopped
(SIGSTOP), in the other it works. The beginning of each window is excluded, because writes of the
previous window end there. A pair counts if the cleaner worked and stood as planned. Besides, at
most one percent of the machine may be stolen in a window, and a tenth taken by other processes. The
windows of a pair are compared by p99, and by the time of the broker's main thread in the run queue.
"""

import argparse
import os
import random
import signal
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.process import BrokerProcess, until

TOPICS = 3
WINDOW_S, SETTLE_S, PAUSE_S, WARM_WINDOWS = 1.0, 0.3, 0.001, 5
STOLEN_MAX, OTHERS_MAX = 0.01, 0.1
PAIRS_MIN = 10


def fill(bootstrap: str, topic: str, size: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    rng = random.Random(topic)
    for _ in range(size // 100):
        key, value = b"key-%d" % rng.randrange(size // 500), rng.randbytes(70)
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


@dataclass(frozen=True)
class Window:
    """One second.

    Attributes:
        p99_ms: Of its produces.
        waited_ms: For so long the broker's main thread was ready and did not run.
        cleaner_s: Processor time of the cleaner.
        stolen, others: Shares of the machine.
    """

    p99_ms: float
    waited_ms: float
    cleaner_s: float
    stolen: float
    others: float

    def counts(self, *, works: bool) -> bool:
        if self.stolen > STOLEN_MAX or self.others > OTHERS_MAX:
            return False
        return self.cleaner_s > 0.3 * WINDOW_S if works else self.cleaner_s < 0.02


def produce_for(producer: Producer, seconds: float) -> list[float]:
    """Milliseconds of each produce."""
    times, end = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        producer.produce("probed", b"x" * 100, partition=0)
        producer.flush(30)
        times.append((time.perf_counter() - began) * 1_000)
        time.sleep(PAUSE_S)
    return times


def waited_ms(pid: int) -> float:
    """Time on the run queue of a process's main thread so far."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e6


def used_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def window(producer: Producer, broker: int, cleaner: int) -> Window:
    produce_for(producer, SETTLE_S)
    ours = (broker, cleaner, os.getpid())
    machine, waited = psutil.cpu_times(), waited_ms(broker)
    used = [used_s(pid) for pid in ours]
    times = produce_for(producer, WINDOW_S)
    used = [used_s(pid) - before for pid, before in zip(ours, used, strict=True)]
    after = psutil.cpu_times()
    total = max(sum(after) - sum(machine), 1e-9)
    busy = total - (after.idle - machine.idle) - (after.iowait - machine.iowait)
    return Window(
        statistics.quantiles(times, n=100)[98],
        waited_ms(broker) - waited,
        used[1],
        (after.steal - machine.steal) / total,
        max(busy - sum(used), 0.0) / total,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--mb", type=int, default=150)
    parser.add_argument("--pairs", type=int, default=40)
    given = parser.parse_args()
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": str(1 << 20)}
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
        for _ in range(WARM_WINDOWS):
            window(producer, broker.pid, pid)
        measure(pid, broker.pid, producer, given.pairs)
    finally:
        broker.close()


def measure(pid: int, broker: int, producer: Producer, pairs: int) -> None:
    rng, counted, stopped = random.Random(1), list[tuple[Window, Window]](), 0
    for _ in range(pairs):
        pair: dict[bool, Window] = {}
        for works in rng.sample([True, False], 2):
            os.kill(pid, signal.SIGCONT if works else signal.SIGSTOP)
            pair[works] = window(producer, broker, pid)
        if all(one.counts(works=works) for works, one in pair.items()):
            counted.append((pair[True], pair[False]))
        stopped += pair[True].cleaner_s < 0.3 * WINDOW_S
    os.kill(pid, signal.SIGCONT)
    print(f"{len(counted)} of {pairs} pairs count; in {stopped} the cleaner had little to do")
    if len(counted) < PAIRS_MIN:
        print(f"fewer than {PAIRS_MIN}: the machine is not quiet enough to say anything")
        return
    for name, unit in (("p99_ms", "p99"), ("waited_ms", "wait of the main thread in a second")):
        both = [(getattr(works, name), getattr(rests, name)) for works, rests in counted]
        low, middle, high = statistics.quantiles([works - rests for works, rests in both], n=4)
        print(
            f"{unit}: {statistics.median(works for works, _ in both):.2f} ms at work, "
            f"{statistics.median(rests for _, rests in both):.2f} ms stopped; "
            f"difference {middle:+.2f} ms (quartiles {low:+.2f} to {high:+.2f}), higher at work in "
            f"{sum(works > rests for works, rests in both)} of {len(both)} pairs"
        )


if __name__ == "__main__":
    main()
