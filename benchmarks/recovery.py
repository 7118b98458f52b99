"""Measures how fast a start reads the logs of a killed broker.

    python -m benchmarks.recovery [--mb 256] [--partitions 4] [--threads 1]

It writes logs of batches of a given size, one segment a partition, without a clean mark and a
recovery point. Then it opens them as a broker does at its start: every batch is read, checked and
indexed. The files are in the page cache, so the figures are of the program, not of the disk. It
prints a row for each size of a batch, without and with a producer id (idempotent producers have
one).
"""

import argparse
import asyncio
import shutil
import struct
import tempfile
import time
from pathlib import Path

from kafka_protocol.files import epoch_checkpoint, offset_checkpoint
from kafka_protocol.files.meta_properties import dump_partition_metadata
from kafka_protocol.records.batch import LOG_OVERHEAD
from kafka_protocol.records.records import build_batch
from kafka_protocol.types import EpochEntry
from local_log.config import LogConfig
from local_log.manager.log_dirs import LogManager
from runtime.ports import Ports, system_ports

_DIFFERENT = 4096  # batches that are built; the log repeats them at other offsets
_START_MS = 1_700_000_000_000
_OFFSET = struct.Struct(">q")
_TOPIC_ID = bytes(range(16))


def one_batch(size: int, number: int, *, producer_id: int) -> bytearray:
    """A batch of one record, of exactly `size` bytes where a varint's length allows it."""
    has_id = producer_id >= 0

    def build(value_bytes: int) -> bytearray:
        return build_batch(
            [(_START_MS + number, None, bytes(value_bytes), [])],
            leader_epoch=0,
            producer_id=producer_id,
            producer_epoch=0 if has_id else -1,
            base_sequence=number if has_id else -1,
        )

    shortest = build(0)
    batch = build(size - len(shortest))
    return build(2 * size - len(shortest) - len(batch))


def write_log(directory: Path, size_bytes: int, batch_bytes: int, *, producer_id: int) -> int:
    """Write one segment; returns its size."""
    directory.mkdir(parents=True)
    (directory / "partition.metadata").write_bytes(dump_partition_metadata(_TOPIC_ID))
    chain = epoch_checkpoint.dump([EpochEntry(0, 0)])
    (directory / "leader-epoch-checkpoint").write_bytes(chain)
    different = min(_DIFFERENT, size_bytes // batch_bytes)
    built = [one_batch(batch_bytes, n, producer_id=producer_id) for n in range(different)]
    places, at = [], 0
    for batch in built:
        places.append(at)
        at += len(batch)
    run, offset, written = bytearray().join(built), 0, 0
    with (directory / f"{0:020d}.log").open("wb") as file:
        while written < size_bytes:
            for place in places:
                _OFFSET.pack_into(run, place, offset)
                offset += 1
            file.write(run)
            written += len(run)
    return written


def write_logs(
    path: Path, *, mb: int, partitions: int, batch_bytes: int, producer_id: int
) -> tuple[int, int]:
    """Fill a log directory as a kill leaves it; returns bytes and batches."""
    size = (mb << 20) // partitions
    written = 0
    for index in range(partitions):
        directory = path / f"bench-{index}"
        written += write_log(directory, size, batch_bytes, producer_id=producer_id)
    points = offset_checkpoint.dump({})
    (path / offset_checkpoint.RECOVERY_POINTS).write_bytes(points)
    return written, written // batch_bytes


def recover(path: Path, ports: Ports, threads: int) -> float:
    """Open everything; returns seconds."""
    manager = LogManager([path], lambda _topic: LogConfig(), ports)
    began = time.perf_counter()
    manager.load(threads=threads)
    seconds = time.perf_counter() - began
    assert all(log.truncated_bytes == 0 for log in manager.all())
    assert sum(log.size_bytes for log in manager.all()) > LOG_OVERHEAD
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1, help="num.recovery.threads.per.data.dir")
    parser.add_argument("--runs", type=int, default=3, help="the best one is printed")
    parser.add_argument("--batch-bytes", type=int, nargs="*", default=[160, 1024, 16384])
    options = parser.parse_args()
    print(f"{'bytes':>7} {'producer':>8} {'batches':>9} {'s':>7} {'MiB/s':>7} {'us/batch':>8}")
    ports = system_ports(asyncio.new_event_loop())
    for batch_bytes in options.batch_bytes:
        for producer_id in (-1, 7):
            with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
                found = Path(scratch) / "found"
                size, batches = write_logs(
                    found,
                    mb=options.mb,
                    partitions=options.partitions,
                    batch_bytes=batch_bytes,
                    producer_id=producer_id,
                )
                seconds = []
                for run in range(options.runs):
                    copy = Path(scratch) / f"run-{run}"
                    shutil.copytree(found, copy)
                    seconds.append(recover(copy, ports, options.threads))
                    shutil.rmtree(copy)
            best = min(seconds)
            print(
                f"{batch_bytes:7} {'yes' if producer_id >= 0 else 'no':>8} {batches:9} "
                f"{best:7.2f} {size / best / (1 << 20):7.1f} {best / batches * 1e6:8.2f}"
            )
    ports.executors.shutdown()


if __name__ == "__main__":
    main()
