"""Make the archive of today's data directories.

    PYTHONPATH=. python tests/upgrade/make.py before-lighter-house

An archive is never made again: a capability that changes what is on disk adds one under a new
name. It is that of a killed standalone voter (kraft.version 1) with two log directories.
"""

import sys
import tempfile
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers.clients import produce
from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.process import until
from tests.support.samples.upgrade import (
    DATA,
    PLAIN,
    RECORDS,
    ROUNDS,
    TIERED,
    Expected,
    broker_at,
    check_everything,
    expected_of,
    pack,
    records_of,
    wait_until_old_segments_are_remote_only,
    write_expected,
)

CODECS = ("none", "lz4", "zstd")
PARTITIONS = {PLAIN: 4, TIERED: 3}
LANES = [(topic, partition) for topic, count in PARTITIONS.items() for partition in range(count)]
LOG_STARTS = {(PLAIN, 0): 30, (PLAIN, 3): 150, (TIERED, 1): 150}
"""Within the first segment, within the second one, and above a whole remote segment."""
TAIL = 40
"""Records that are in no closed segment and that nobody flushed."""
END = ROUNDS * RECORDS + TAIL


def fill(broker: DirectoriesBroker) -> None:
    """Write all partitions in rounds, so that each one gets several segments; then raise starts."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    tiered = {"remote.storage.enable": "true", "local.retention.bytes": "1", "segment.ms": "500"}
    new = [
        NewTopic(PLAIN, PARTITIONS[PLAIN], 1, config={"segment.ms": "500"}),
        NewTopic(TIERED, PARTITIONS[TIERED], 1, config=tiered),
    ]
    for future in admin.create_topics(new).values():
        future.result(30)
    for number in range(ROUNDS):
        part = slice(number * RECORDS, (number + 1) * RECORDS)
        for lane in LANES:
            how = {"compression.type": CODECS[number], "enable.idempotence": True}
            produce(broker, lane[0], records_of(*lane, END)[part], lane[1], **how)
        until(
            lambda: all(
                len(broker.remote_segments(TIERED, partition)) > number  # noqa: B023
                for partition in range(PARTITIONS[TIERED])
            ),
            "the round is copied",
        )
    for lane, offset in LOG_STARTS.items():
        partition = TopicPartition(*lane, offset)
        admin.delete_records([partition])[partition].result(30)
    wait_until_old_segments_are_remote_only(broker, PARTITIONS[TIERED])
    until(
        lambda: broker.remote_segments(TIERED, 1)[0] >= RECORDS,
        "the remote segment below the log start is gone",
    )
    for lane in LANES:
        produce(broker, lane[0], records_of(*lane, END)[-TAIL:], lane[1])


def make(archive: Path) -> None:
    """Run a broker through a short life and pack what it leaves behind."""
    with tempfile.TemporaryDirectory() as directory:
        broker = broker_at(Path(directory) / "broker")
        formatted = broker.format("--standalone")
        assert formatted.returncode == 0, formatted.stdout + formatted.stderr
        try:
            broker.start()
            fill(broker)
            wanted = [Expected(*lane, None, LOG_STARTS.get(lane, 0), END) for lane in LANES]
            write_expected(broker, wanted)
            check_everything(broker, expected_of(broker.directory))
            broker.kill()
        finally:
            broker.close()
        pack(broker, archive)


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    archive = DATA / f"{sys.argv[1]}.tar.xz"
    if archive.exists():
        sys.exit(f"{archive} is there already, and stays as it is")
    make(archive)
    sys.stdout.write(f"{archive.name}: {archive.stat().st_size} bytes\n")
