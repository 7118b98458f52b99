"""Compares the throughput of reads at old offsets with that of the store itself.

    python -m benchmarks.remote_store [--mb 1024] [--bare] [--first-byte-ms 30] [--mb-per-s 200]

Starts LocalStack S3, a proxy that makes it far away (`slow_store`; with `--bare` none), a broker
that tiers to it, and measures:

* the raw throughput of the same endpoint: ranged GETs by boto3 in threads, the best of several
  sizes and thread counts;
* consuming one and eight partitions from the remote tier with librdkafka, with everyone's CPU;
* the time to the first remote record;
* PUT and GET requests per GB copied and read (as the proxy counts them);
* the p99 of small produces with copying against without.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import psutil
from botocore.config import Config
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import brokers, local_starts

MB = 1_000_000
SEGMENT_BYTES = 32 << 20
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}
BUCKET = "tidemark-bench"
PLUGIN = "rsm_plugins.s3:S3RemoteStorageManager"
VALUE = os.urandom(1024)


@contextmanager
def started(command: list[str]) -> Iterator[tuple[str, int]]:
    """Run a server that says `ready endpoint=URL`; gives its URL and process id."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready endpoint="):
                yield line.split("=", 1)[1].split()[0], process.pid
                return
        sys.exit(f"ended before it was ready: {' '.join(command)}")
    finally:
        process.terminate()
        process.wait(30)


class Bench:
    """One broker and the store behind it."""

    def __init__(self, running: brokers.Running, endpoint: str, others: Mapping[str, int]) -> None:
        self.bootstrap, self.endpoint = running.bootstrap, endpoint
        self.admin = AdminClient({"bootstrap.servers": running.bootstrap})
        broker = psutil.Process(running.pid)
        self.families = {"broker": [broker], "client": [psutil.Process()]}
        self.families["tier"] = broker.children(recursive=True)
        for name, pid in others.items():
            process = psutil.Process(pid)
            self.families[name] = [process, *process.children(recursive=True)]
        self.results: dict[str, Any] = {}

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by user of the CPU."""
        return {
            name: sum(t.user + t.system for t in (p.cpu_times() for p in family))
            for name, family in self.families.items()
        }

    def timed(self, name: str, work: Callable[[], int]) -> float:
        """MB/s of a piece of work that returns its bytes, noted with everyone's CPU s per GB."""
        before, began = self.cpu(), time.perf_counter()
        size = work()
        took, after = time.perf_counter() - began, self.cpu()
        speed = round(size / MB / took, 1)
        self.results[name] = {
            "mb_per_s": speed,
            "cpu_s_per_gb": {k: round((after[k] - before[k]) / (size / 1e9), 2) for k in after},
        }
        print(f"{name}: {self.results[name]}", file=sys.stderr, flush=True)
        return speed

    def topic(self, partitions: int, **config: str) -> str:
        """A new topic."""
        name = f"bench-{uuid.uuid4().hex[:8]}"
        self.admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
        return name

    def fill(self, partitions: int, total: int) -> str:
        """A tiered topic of so many bytes, of which all will be read from the store."""
        name = self.topic(
            partitions,
            **{
                "remote.storage.enable": "true",
                "segment.bytes": str(SEGMENT_BYTES),
                "local.retention.bytes": "1",
            },
        )
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 50, "log_level": 2})
        each = (total // partitions + 2 * SEGMENT_BYTES) // len(VALUE)
        for index in range(each * partitions):
            while True:
                try:
                    producer.produce(name, VALUE, partition=index % partitions)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.flush(120)
        wanted = total // partitions // len(VALUE)
        local_starts.wait_for(self.bootstrap, name, range(partitions), wanted, deadline_s=300)
        return name

    def consume(self, topic: str, partitions: int, total: int) -> int:
        """Read all partitions from their begin until each gave its share; counts all it got."""
        # A full queue pauses librdkafka for a second by default: this is no benchmark of that.
        consumer = self.consumer("queued.max.messages.kbytes", 32_768, "fetch.queue.backoff.ms", 2)
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        want, got = total // partitions // len(VALUE), [0] * partitions
        began = time.monotonic()
        while min(got) < want:
            for message in consumer.consume(5_000, 1.0):
                if message.error():
                    raise RuntimeError(str(message.error()))
                partition, offset = message.partition(), message.offset()
                assert offset == got[partition], (partition, offset, got[partition])
                got[partition] += 1
            if time.monotonic() - began > 300:
                raise RuntimeError(f"{got} of {want} records each after 300 s")
        consumer.close()
        return sum(got) * len(VALUE)

    def consumer(self, *more: Any) -> Consumer:
        """A new consumer; `more` are further settings and their values in turn."""
        usual = {"group.id": "bench", "enable.auto.commit": False, "log_level": 2}
        given = dict(zip(more[::2], more[1::2], strict=True))
        return Consumer({"bootstrap.servers": self.bootstrap, **usual, **given})

    def first_record_ms(self, topic: str, offsets: list[int]) -> float:
        """Median time from assigning a new consumer in the remote range to its first record."""
        times = []
        for offset in offsets:
            consumer = self.consumer()
            consumer.list_topics(topic)  # connects, learns the leader
            consumer.assign([TopicPartition(topic, 0, offset)])
            began = time.perf_counter()
            (message,) = consumer.consume(1, 30)
            times.append((time.perf_counter() - began) * 1_000)
            assert message.offset() == offset, message.offset()
            consumer.close()
        return round(statistics.median(times), 1)

    def counts(self, *, reset: bool = False) -> dict[str, int]:
        """Requests and bytes that the proxy counted."""
        request = urllib.request.Request(
            f"{self.endpoint}/_counts", method="DELETE" if reset else "GET"
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)  # type: ignore[no-any-return]


def raw_get(endpoint: str, prefix: str, range_bytes: int, threads: int, total: int) -> int:
    """Bytes got by plain boto3: ranges of the topic's segments, one after another."""
    client = boto3.client("s3", endpoint_url=endpoint, config=Config(max_pool_connections=threads))
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]
    ranges = [
        (found["Key"], start, min(start + range_bytes, found["Size"]) - 1)
        for found in listed
        if found["Key"].endswith(".log")
        for start in range(0, found["Size"], range_bytes)
    ][: max(1, total // range_bytes)]

    def get(asked: tuple[str, int, int]) -> int:
        key, first, last = asked
        body = client.get_object(Bucket=BUCKET, Key=key, Range=f"bytes={first}-{last}")["Body"]
        return sum(len(piece) for piece in body.iter_chunks(1 << 20))

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(get, ranges))


def produce_p99(bench: Bench, running: brokers.Running, rounds: int = 3) -> dict[str, Any]:
    """p99 of small produces under a steady load, with and without copying in turn, and the ratio.

    The ratio is the median of the rounds' ratios: a neighbour's noise hits one round.
    """
    tiered = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
    answers: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(rounds):
        for name, config in (("without", {}), ("with", tiered)):
            busy = bench.topic(2, **config, **{"segment.bytes": str(8 << 20)})
            command = [sys.executable, "-m", "benchmarks.produce_latency", running.bootstrap, busy]
            done = subprocess.run(
                [*command, bench.topic(2)], check=True, stdout=subprocess.PIPE, cwd=brokers.ROOT
            )
            answers[name].append(float(json.loads(done.stdout)["p99_ms"]))
    ratios = [far / near for near, far in zip(*answers.values(), strict=True)]
    return {**answers, "ratio": round(statistics.median(ratios), 2)}


def measure(bench: Bench, running: brokers.Running, total: int, *, counted: bool) -> None:
    """All figures, in `bench.results`."""
    if counted:
        bench.counts(reset=True)
    topics = {partitions: bench.fill(partitions, total) for partitions in (1, 8)}
    if counted:
        bench.results["copied"] = bench.counts(reset=True)
    best = 0.0
    for partitions, topic in topics.items():
        raw_get(bench.endpoint, f"{topic}-", 8 << 20, 8, 4 * total)  # the proxy has it all now
        for size_mib, threads in ((2, 8), (8, 8), (8, 16)):
            name = f"raw GET of {size_mib} MiB by {threads} threads, {partitions} partitions"
            work = lambda t=topic, s=size_mib, n=threads: raw_get(  # noqa: E731
                bench.endpoint, f"{t}-", s << 20, n, total
            )
            best = max(best, bench.timed(name, work))
    bench.results["raw_best_mb_per_s"] = best
    offsets = [total // len(VALUE) * part // 10 for part in (3, 5, 7)]
    bench.results["first_remote_record_ms"] = bench.first_record_ms(topics[1], offsets)
    if counted:
        bench.counts(reset=True)
    for partitions, topic in topics.items():
        work = lambda t=topic, p=partitions: bench.consume(t, p, total)  # noqa: E731
        speed = bench.timed(f"consume {partitions} partitions", work)
        bench.results[f"ratio_{partitions}"] = round(speed / best, 2)
        if counted:
            bench.results[f"read_{partitions}"] = bench.counts(reset=True)
    bench.results["produce_p99_ms"] = produce_p99(bench, running)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--first-byte-ms", type=float, default=30)
    parser.add_argument("--mb-per-s", type=float, default=200)
    parser.add_argument("--setting", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    os.environ.update(CREDENTIALS)
    script = str(brokers.ROOT / "localstack" / "start.py")
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        data = Path(scratch)
        store = [sys.executable, script, "--port", "0", "--data", str(data / "s3")]
        with started([*store, "--bucket", BUCKET]) as (upstream, store_pid):
            proxy = [sys.executable, "-m", "benchmarks.slow_store", "--upstream", upstream]
            proxy += [f"--first-byte-ms={options.first_byte_ms}", f"--mb-per-s={options.mb_per_s}"]
            with started(proxy) as (far, proxy_pid):
                endpoint = upstream if options.bare else far
                settings = {
                    "remote.log.storage.manager.class.name": PLUGIN,
                    "rsm.config.bucket": BUCKET,
                    "rsm.config.region": "us-east-1",
                    "rsm.config.endpoint.url": endpoint,
                    **dict(pair.split("=", 1) for pair in options.setting),
                }
                with brokers.tidemark(data / "broker", tiered=True, settings=settings) as running:
                    others = {"store": store_pid, "proxy": proxy_pid}
                    bench = Bench(running, endpoint, others)
                    measure(bench, running, options.mb * MB, counted=not options.bare)
    print(json.dumps(bench.results, indent=1))


if __name__ == "__main__":
    main()
