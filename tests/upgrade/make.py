"""Make the archives of today's data directories.

    PYTHONPATH=.:tests/integration python tests/upgrade/make.py first-light

Archives are kept for ever and never made again: a capability that changes what is on disk adds new
ones under a new name.
"""

import sys
import tempfile
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness_broker import BrokerProcess, until
from harness_clients import end_offsets, produce
from upgrade_samples import (
    DATA,
    DELETED_BELOW,
    PLAIN,
    RECORDS,
    ROUNDS,
    TIERED,
    broker_at,
    pack,
    records_of,
    wait_until_old_segments_are_remote_only,
)

CODECS = ("none", "lz4", "zstd")


def fill(broker: BrokerProcess) -> None:
    """Write both topics in rounds, so that the tiered one gets several segments."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    tiered = {"remote.storage.enable": "true", "local.retention.bytes": "1", "segment.ms": "500"}
    wanted = admin.create_topics([NewTopic(PLAIN, 2, 1), NewTopic(TIERED, 1, 1, config=tiered)])
    for future in wanted.values():
        future.result(30)
    for number in range(ROUNDS):
        part = slice(number * RECORDS, (number + 1) * RECORDS)
        how = {"compression.type": CODECS[number], "enable.idempotence": True}
        for topic, partition in ((PLAIN, 0), (PLAIN, 1), (TIERED, 0)):
            produce(broker, topic, records_of(topic, partition)[part], partition, **how)
        until(lambda: len(broker.remote_segments(TIERED)) > number, "the round is copied")  # noqa: B023
    admin.delete_records([TopicPartition(PLAIN, 0, DELETED_BELOW)])[
        TopicPartition(PLAIN, 0)
    ].result(30)
    wait_until_old_segments_are_remote_only(broker)


def make(archive: Path, *, kraft_version: int, is_clean: bool) -> None:
    """Run a broker through a short life and pack what it leaves behind."""
    with tempfile.TemporaryDirectory() as directory:
        broker = broker_at(Path(directory) / "broker", kraft_version=kraft_version)
        formatted = broker.format(*(["--standalone"] if kraft_version else []))
        assert formatted.returncode == 0, formatted.stdout + formatted.stderr
        try:
            broker.start()
            fill(broker)
            assert end_offsets(broker, PLAIN)[0] == DELETED_BELOW
            if is_clean:
                assert broker.terminate() == 0
            else:
                broker.kill()
        finally:
            broker.close()
        pack(broker.directory, archive)


def main(capability: str) -> None:
    """Make four archives."""
    DATA.mkdir(exist_ok=True)
    for kraft_version in (0, 1):
        for is_clean in (True, False):
            how = "clean" if is_clean else "killed"
            archive = DATA / f"{capability}-kraft{kraft_version}-{how}.tar.xz"
            if archive.exists():
                sys.exit(f"{archive} is there already, and stays as it is")
            make(archive, kraft_version=kraft_version, is_clean=is_clean)
            sys.stdout.write(f"{archive.name}: {archive.stat().st_size} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1])
