"""How fast the cleaner goes over a log: MB of log read a second, in its one process.

    python -m benchmarks.compaction [--mb 200] [--sizes 100 1024] [--codecs none zstd] [--profile]

The log is made first: batches of some 16 KiB, keys drawn evenly, a fifth as many keys as records.
A pass reads the dirty part twice, once for its keys. The printed rate counts the log once: its
bytes divided by the time of the whole pass. CPU seconds are those of this process, which does the
work of the cleaner process.
"""

import argparse
import cProfile
import os
import pstats
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kafka_protocol.records.batch import Codec
from kafka_protocol.records.records import NewRecord, build_batch
from kafka_protocol.types import TopicPartition
from local_log.cleaner.cleaner import NotedLog
from local_log.cleaner.log_pass import CleanerSettings, Done, Group, LogPass
from local_log.config import LogConfig
from local_log.log.partition_log import PartitionLog
from local_log.recovery.survey import OpenRequest
from runtime.disk import Disk

BATCH_BYTES = 16_384
NOW_MS = 1_700_000_000_000
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=100 << 20)


def batches(size: int, record_bytes: int, codec: int) -> Iterator[bytearray]:
    """Batches of `size` bytes in all, before they are compressed."""
    rng = random.Random(1)
    count = size // record_bytes
    keys, in_batch = max(count // 5, 1), max(BATCH_BYTES // record_bytes, 1)
    value_bytes = max(record_bytes - 30, 1)
    words = [os.urandom(8).hex().encode() for _ in range(500)]
    for _ in range(count // in_batch):
        records: list[NewRecord] = []
        for at in range(in_batch):
            value = b" ".join(rng.choices(words, k=value_bytes // 17 + 1))[:value_bytes]
            records.append((NOW_MS + at, b"key-%012d" % rng.randrange(keys), value, []))
        yield build_batch(records, codec=codec)


def make_log(directory: Path, size: int, record_bytes: int, codec: int) -> PartitionLog:
    log = PartitionLog.open(
        OpenRequest(TopicPartition("bench", 0), directory, COMPACTED, NOW_MS, is_clean=True),
        topic_id=bytes(16),
        disk=Disk(),
    )
    for batch in batches(size, record_bytes, codec):
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, from_client=False)
    log.roll(NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    log.flush()
    return log


def one_pass(log: PartitionLog, map_bytes: int) -> tuple[Done, list[Group], float, float]:
    """The answers of one pass, and its seconds: of the clock, of the processor."""
    noted = NotedLog.of(log, None)
    settings = CleanerSettings(map_bytes=map_bytes)
    found = noted.range(NOW_MS)
    job = noted.job(found, b"", settings, number=1, token="bench", now_ms=NOW_MS)
    began, cpu = time.perf_counter(), time.process_time()
    *groups, done = LogPass(job, log.disk, lambda _: None).run()
    took = time.perf_counter() - began, time.process_time() - cpu
    assert isinstance(done, Done)
    return done, [one for one in groups if isinstance(one, Group)], *took


def measure(size: int, record_bytes: int, codec: Codec, *, profile: bool) -> None:
    directory = Path(tempfile.mkdtemp(prefix="compaction-"))
    try:
        log = make_log(directory, size, record_bytes, codec)
        log_bytes = log.segments.closed_bytes
        profiler = cProfile.Profile()
        if profile:
            profiler.enable()
        done, groups, seconds, cpu = one_pass(log, 512 << 20)
        if profile:
            profiler.disable()
            pstats.Stats(profiler).sort_stats("tottime").print_stats(12)
        left = sum(group.size_bytes for group in groups)
        print(
            f"{record_bytes:6} B {codec.name.lower():6} log {log_bytes / 1e6:7.1f} MB, "
            f"{log.log_end_offset:9,} records: {log_bytes / 1e6 / seconds:7.1f} MB/s, "
            f"{log.log_end_offset / seconds / 1e3:6.0f} k records/s, CPU {cpu:5.2f} of "
            f"{seconds:5.2f} s, left {left / log_bytes:4.0%}, keys left: {done.keys_left}"
        )
    finally:
        shutil.rmtree(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1024])
    parser.add_argument("--codecs", nargs="+", default=["none"])
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    for record_bytes in given.sizes:
        for name in given.codecs:
            measure(given.mb * 1_000_000, record_bytes, Codec.named(name), profile=given.profile)


if __name__ == "__main__":
    main()
