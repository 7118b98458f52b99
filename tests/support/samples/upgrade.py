"""Data directories of earlier days: what is in them, how they are made, packed and unpacked.

An archive holds a whole broker's directory: log directories, remote store and `expected.json`,
which lists every partition with what must be found in it.
"""

import json
import tarfile
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import TopicCollection

from tests.support.brokers.clients import Read, Sent, end_offsets, read_all
from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_topics import admin_of

DATA = Path(__file__).parents[2] / "upgrade" / "data"
PLAIN, TIERED = "plain", "tiered"
ROUNDS, RECORDS = 3, 120
EXPECTED = "expected.json"


@dataclass(frozen=True)
class Expected:
    """What must be found in one partition.

    Attributes:
        topic_id: as text; None before it is known.
        log_start, end: first offset, and the one after the last.
        directory: name of the log directory that holds it.
    """

    topic: str
    partition: int
    topic_id: str | None
    log_start: int
    end: int
    directory: str = "logs"

    def records(self) -> list[Read]:
        """All that must be read."""
        sent = records_of(self.topic, self.partition, self.end)
        return [(n, key, value) for n, (key, value) in enumerate(sent) if n >= self.log_start]


def records_of(topic: str, partition: int, count: int) -> list[Sent]:
    """The first records that were ever written to one partition."""
    return [
        (b"%d" % n, f"{topic}-{partition} {n} ".encode() + bytes(range(n % 200)))
        for n in range(count)
    ]


def expected_of(directory: Path) -> list[Expected]:
    """What an unpacked archive holds."""
    return [Expected(**one) for one in json.loads((directory / EXPECTED).read_text())]


def write_expected(broker: DirectoriesBroker, partitions: list[Expected]) -> None:
    """Leave the list in the broker's directory, with the ids and places of a running broker."""
    ids = topic_ids(broker)
    found = [
        asdict(one)
        | {
            "topic_id": ids[one.topic],
            "directory": broker.partition_directory(one.topic, one.partition).parent.name,
        }
        for one in partitions
    ]
    (broker.directory / EXPECTED).write_text(json.dumps(found, indent=1) + "\n")


def topic_ids(broker: BrokerProcess) -> dict[str, str]:
    """Ids of both topics, as Metadata tells them."""
    admin = admin_of(broker)
    wanted = admin.describe_topics(TopicCollection([PLAIN, TIERED]))
    return {name: str(future.result(30).topic_id) for name, future in wanted.items()}


def check_everything(broker: DirectoriesBroker, partitions: list[Expected]) -> None:
    """Ids, places, log starts, ends and every record are as they were."""
    ids = topic_ids(broker)
    for one in partitions:
        where = (one.topic, one.partition)
        if one.topic_id is not None:
            assert ids[one.topic] == one.topic_id
        name = f"{one.topic}-{one.partition}"
        places = [path.name for path in broker.log_directories if (path / name).is_dir()]
        assert places == [one.directory], where
        assert end_offsets(broker, *where) == (one.log_start, one.end), where
        assert read_all(broker, *where) == one.records(), where


def broker_at(directory: Path) -> DirectoriesBroker:
    """A tiering broker on such a directory, with segments that roll within a second."""
    broker = DirectoriesBroker(directory, tiered=True, log_directories=2)
    broker.settings = {
        "log.index.size.max.bytes": "4096",
        "tidemark.remote.copy.max.ms": "1000",
        "offsets.topic.num.partitions": "1",
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{broker.controller_port}",
        "log.retention.ms": "-1",  # the records of an archive are older than any default
    }
    return broker


def broker_of(archive: Path, directory: Path) -> DirectoriesBroker:
    """Unpack an archive; a broker that is not started yet on what was in it."""
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    return broker_at(directory)


def pack(broker: DirectoriesBroker, archive: Path) -> None:
    """Pack logs and remote store; the zeros of preallocated indexes all but vanish."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in (*broker.log_directories, broker.remote_directory, broker.directory / EXPECTED):
            tar.add(path, path.name, filter=_without_owner)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if Path(member.name).name == "LOG":
        return None  # RocksDB's chatter about the machine it ran on
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def wait_until_old_segments_are_remote_only(broker: BrokerProcess, partitions: int = 1) -> None:
    """Wait until all closed segments of TIERED are in the store, and there only."""

    def is_remote_only(partition: int) -> bool:
        remote = broker.remote_segments(TIERED, partition)
        local = broker.local_segments(TIERED, partition)
        return bool(remote) and local[0] >= remote[-1] >= (ROUNDS - 1) * RECORDS

    until(
        lambda: all(is_remote_only(partition) for partition in range(partitions)),
        "all segments but the last are remote, and local no more",
    )
