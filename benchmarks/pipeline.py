"""Measures reading the tiered log as columns, beside a consumer and Spark's Kafka connector.

    python -m benchmarks.pipeline [--mb 256] [--sizes 100,1024] [--codecs none,lz4,zstd]
        [--works decode,scan,spark,consumer,connector,broker] [--connector-python VENV/bin/python]
        [--connector-jars DIR]

A Tidemark broker tiers each topic to a directory. `decode`, `scan` and `spark` read that directory,
the last two without the broker. `consumer` and `connector` read the topic through the broker. The
best of `--rounds` counts. MB are 10^6 bytes of keys and values. `a core` divides by the CPU seconds
of all processes that read, with the JVM and its Python workers, but without the broker.

`broker` plans the offsets of the remote tier through the broker, and reads them. It prints the
broker's CPU meanwhile, and its CPU while idle.

The connector needs pyspark 4.0.0 in its own environment (`pip install pyspark==4.0.0`). It also
needs a directory with the jars of `org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0` and their
dependencies (`mvn dependency:copy-dependencies -DincludeScope=runtime`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition

from benchmarks import brokers
from benchmarks.pipeline_topic import KEY_BYTES, TOPIC, filled_topic, records_in
from pipeline.columns import DEFAULT_COLUMNS
from pipeline.decode.group import Keep, Origin, decode_group, whole_batches
from pipeline.java_home import provide_java
from pipeline.opening import open_log
from pipeline.read.split import read_split
from pipeline.scan import scan
from pipeline.store import address_of_url, open_store
from pipeline.values import ClusterAddress, OffsetRange, RemotePiece, SplitLimits, Where

WORKS = ("decode", "scan", "spark", "consumer", "connector", "broker")
GROUP_BYTES = 8 << 20
MASTERS = ("local[1]", "local[2]")


@dataclass(frozen=True)
class Topic:
    """A topic that is filled: where, and the size of its records."""

    bootstrap: str
    broker_pid: int
    bucket: Path
    record_bytes: int


@dataclass(frozen=True)
class Round:
    """Records and bytes that one round read, and its cost."""

    records: int
    seconds: float
    cpu_s: float


def timed(work: Callable[[], int], rounds: int) -> Round:
    """The best round of a work in this process, which gives the number of its records."""
    found = []
    for _ in range(rounds):
        cpu, began = time.process_time(), time.perf_counter()
        records = work()
        found.append(Round(records, time.perf_counter() - began, time.process_time() - cpu))
    return min(found, key=lambda one: one.seconds)


def stored_segments(bucket: Path) -> Iterator[bytes]:
    """The bytes of all segments in the store, ascending by partition and offset."""
    address = address_of_url(str(bucket))
    with closing(open_log(Where(store=address))) as log, closing(open_store(address)) as store:
        partitions = log.partitions([TOPIC])
        starts, ends = log.earliest(partitions), log.latest(partitions)
        ranges = {one: OffsetRange(starts[one], ends[one]) for one in partitions}
        for split in log.plan(ranges, SplitLimits()).splits:
            for piece in split.pieces:
                assert isinstance(piece, RemotePiece)
                if piece.byte_from == 0:
                    with store.fetch_log_segment(piece.segment, 0) as stream:
                        yield stream.read()


def decode_all(segments: list[bytes]) -> int:
    """Decode the batches in memory, in groups as the reader makes them."""
    rows = 0
    origin, keep = Origin(TOPIC, 0, "memory", 0), Keep(0, 1 << 62)
    for segment in segments:
        rest = memoryview(segment)
        while rest:
            size = whole_batches(rest[:GROUP_BYTES])
            for batch in decode_group(rest[:size], origin, keep, DEFAULT_COLUMNS):
                rows += batch.num_rows
            rest = rest[size:]
    return rows


def scan_all(bucket: Path) -> int:
    """Read the topic without a broker."""
    return sum(batch.num_rows for batch in scan(TOPIC, bucket=str(bucket)))


def consume_all(bootstrap: str) -> int:
    """Read the topic with librdkafka, ten thousand messages a call."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    left = sum(records_in(bootstrap).values())
    read = 0
    consumer.assign([TopicPartition(TOPIC, one, 0) for one in records_in(bootstrap)])
    while read < left:
        for message in consumer.consume(min(10_000, left - read), 60):
            if message.error():
                sys.exit(f"the consumer failed: {message.error()}")
            read += 1
    consumer.close()
    return read


def spark_round(python: str, asked: dict[str, object], records: int) -> Round:
    """The best round of a Spark of its own, its first one excluded: it starts workers."""
    environ = os.environ | {"PYSPARK_PYTHON": python, "PYTHONPATH": str(brokers.ROOT)}
    program = Path(__file__).with_name("pipeline_spark.py")
    done = subprocess.run(
        [python, str(program), json.dumps(asked)],
        env=environ,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"Spark failed:\n{done.stderr[-3000:]}")
    rounds = json.loads(done.stdout.splitlines()[-1])["rounds"]
    best = min(rounds[1:] or rounds, key=lambda one: one["seconds"])
    return Round(records, best["seconds"], best["cpu_s"])


def spark_source(topic: Topic, master: str, options: argparse.Namespace, records: int) -> Round:
    """Our source, from the store alone."""
    asked = {
        "master": master,
        "format": "tidemark",
        "options": {"subscribe": TOPIC, "tidemark.bucket": str(topic.bucket)},
        "conf": {"spark.driver.memory": "1g"},
        "rounds": options.rounds + 1,
    }
    return spark_round(sys.executable, asked, records)


def spark_connector(topic: Topic, master: str, options: argparse.Namespace) -> Round:
    """Spark's Kafka connector, from the broker."""
    jars = ",".join(str(one) for one in sorted(options.connector_jars.glob("*.jar")))
    asked = {
        "master": master,
        "format": "kafka",
        "options": {
            "subscribe": TOPIC,
            "kafka.bootstrap.servers": topic.bootstrap,
            "startingOffsets": "earliest",
        },
        "conf": {"spark.driver.memory": "1g", "spark.jars": jars},
        "rounds": options.rounds + 1,
    }
    records = sum(records_in(topic.bootstrap).values())
    return spark_round(str(options.connector_python), asked, records)


def broker_cpu_s(pid: int) -> float:
    """CPU seconds of the broker and its children so far."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def broker_share(topic: Topic) -> tuple[float, float]:
    """Shares of a core that the broker took: idle, and while all remote offsets were read."""
    idle_s = 5.0
    before = broker_cpu_s(topic.broker_pid)
    time.sleep(idle_s)
    idle = (broker_cpu_s(topic.broker_pid) - before) / idle_s
    with closing(open_log(Where(ClusterAddress(topic.bootstrap)))) as log:
        partitions = log.partitions([TOPIC])
        starts, ends = log.earliest(partitions), log.remote_ends(partitions)
        ranges = {one: OffsetRange(starts[one], ends[one]) for one in partitions}
        plan, source = log.plan(ranges, SplitLimits()), log.source
        before, began = broker_cpu_s(topic.broker_pid), time.perf_counter()
        for split in plan.splits:
            for _ in read_split(split, source, DEFAULT_COLUMNS):
                pass
        seconds = time.perf_counter() - began
        return idle, (broker_cpu_s(topic.broker_pid) - before) / seconds


def works_on(topic: Topic, options: argparse.Namespace) -> Iterator[tuple[str, Round]]:
    """Every work that was asked for and can be done."""
    if "decode" in options.works:
        segments = list(stored_segments(topic.bucket))
        yield "decode", timed(lambda: decode_all(segments), options.rounds)
        del segments
    if "scan" in options.works:
        yield "scan", timed(lambda: scan_all(topic.bucket), options.rounds)
    if "spark" in options.works:
        provide_java()
        records = scan_all(topic.bucket)
        for master in MASTERS:
            yield f"spark {master}", spark_source(topic, master, options, records)
    if "consumer" in options.works:
        yield "consumer", timed(lambda: consume_all(topic.bootstrap), options.rounds)
    if "connector" in options.works and options.connector_python:
        for master in MASTERS:
            yield f"connector {master}", spark_connector(topic, master, options)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=256, help="keys and values of each topic")
    parser.add_argument("--sizes", default="100,1024", help="bytes of a value")
    parser.add_argument("--codecs", default="none,lz4,zstd")
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connector-python", type=Path)
    parser.add_argument("--connector-jars", type=Path, default=Path("connector"))
    options = parser.parse_args()
    options.works = options.works.split(",")
    if unknown := set(options.works) - set(WORKS):
        sys.exit(f"unknown works: {', '.join(sorted(unknown))}; there are {', '.join(WORKS)}")
    if "connector" in options.works and not options.connector_python:
        print("without Spark's Kafka connector: --connector-python names its interpreter")
    print(f"{'topic':12} {'work':20} {'records/s':>12} {'MB/s':>8} {'MB/s a core':>12}")
    for value_bytes in map(int, options.sizes.split(",")):
        for codec in options.codecs.split(","):
            with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
                data = Path(scratch) / "data"
                with filled_topic(data, options.mb, value_bytes, codec) as running:
                    topic = Topic(
                        running.bootstrap,
                        running.pid,
                        data / "remote-tier",
                        value_bytes + KEY_BYTES,
                    )
                    for work, found in works_on(topic, options):
                        mb = found.records * topic.record_bytes / 1e6
                        print(
                            f"{value_bytes:5} {codec:6} {work:20} "
                            f"{found.records / found.seconds:12,.0f} {mb / found.seconds:8,.0f} "
                            f"{mb / found.cpu_s:12,.0f}",
                            flush=True,
                        )
                    if "broker" in options.works:
                        idle, share = broker_share(topic)
                        print(
                            f"{value_bytes:5} {codec:6} broker: {share:.1%} of a core while remote "
                            f"offsets are read, {idle:.1%} idle",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
