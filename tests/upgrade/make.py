"""Make the archives of today's data directories.

    PYTHONPATH=. python tests/upgrade/make.py before-file-safety

Archives are kept for ever and never made again: a capability that changes what is on disk adds new
ones under a new name. A capability's archives: one and two log directories of a standalone voter
(kraft.version 1), stopped cleanly and killed; two of a static voter (kraft.version 0), killed.
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


def make(archive: Path, *, directories: int, kraft_version: int, is_clean: bool) -> None:
    """Run a broker through a short life and pack what it leaves behind."""
    with tempfile.TemporaryDirectory() as directory:
        broker = broker_at(
            Path(directory) / "broker", kraft_version=kraft_version, directories=directories
        )
        formatted = broker.format(*(["--standalone"] if kraft_version else []))
        assert formatted.returncode == 0, formatted.stdout + formatted.stderr
        try:
            broker.start()
            fill(broker)
            wanted = [Expected(*lane, None, LOG_STARTS.get(lane, 0), END) for lane in LANES]
            write_expected(broker, wanted)
            check_everything(broker, expected_of(broker.directory))
            if is_clean:
                assert broker.terminate() == 0
            else:
                broker.kill()
        finally:
            broker.close()
        pack(broker, archive)


def main(capability: str) -> None:
    """Make five archives."""
    DATA.mkdir(exist_ok=True)
    kinds = [(1, 1, True), (1, 1, False), (2, 1, True), (2, 1, False), (2, 0, False)]
    for directories, kraft_version, is_clean in kinds:
        where = "one-directory" if directories == 1 else "two-directories"
        how = "clean" if is_clean else "killed"
        archive = DATA / f"{capability}-{where}-kraft{kraft_version}-{how}.tar.xz"
        if archive.exists():
            sys.exit(f"{archive} is there already, and stays as it is")
        make(archive, directories=directories, kraft_version=kraft_version, is_clean=is_clean)
        sys.stdout.write(f"{archive.name}: {archive.stat().st_size} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1])
