"""What a broker has answered of topics and records, and whether a later life keeps to it."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files.meta_properties import parse_partition_metadata
from kafka_protocol.files.segment_names import parse_partition_dir, parse_renamed_dir
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.records import iter_records
from local_log.file_names import PARTITION_METADATA
from local_log.log.partition_log import PartitionLog
from metadata_topic.image.image import MetadataImage
from tests.support.worlds.local_log import read_bytes


@dataclass
class Records:
    """What was promised of one partition.

    Attributes:
        given: the values that an offset was ever given: a lost one is given again.
        acked: below it (exclusive) a kill takes nothing.
        synced: below it (exclusive) a power cut takes nothing either.
        start: no record below it may be seen again.
        start_asked: the highest start that was ever asked for.
        was_cut: the power went since it was read last.
    """

    given: dict[int, list[bytes]] = field(default_factory=dict)
    acked: int = 0
    synced: int = 0
    start: int = 0
    start_asked: int = 0
    was_cut: bool = False


@dataclass
class Topic:
    """A topic that was made, by its id.

    Attributes:
        is_leaving: its deletion was asked for, and may have come about.
    """

    name: str
    is_leaving: bool = False
    records: dict[int, Records] = field(default_factory=dict)

    def of(self, partition: int) -> Records:
        return self.records.setdefault(partition, Records())


@dataclass
class Promises:
    """Everything that was answered.

    Attributes:
        topics: those that were not answered to be gone, by id.
        deleted: ids of which DeleteTopics was answered.
        unsure: of these a directory failed in the life in which they were deleted.
        strays: names of directories that were put aside.
    """

    topics: dict[bytes, Topic] = field(default_factory=dict)
    deleted: set[bytes] = field(default_factory=set)
    unsure: set[bytes] = field(default_factory=set)
    strays: set[str] = field(default_factory=set)

    def made(self, topic_id: bytes, name: str) -> Topic:
        assert topic_id not in self.deleted, f"{name} is back"
        return self.topics.setdefault(topic_id, Topic(name))

    def gone(self, topic_id: bytes, *, unsure: bool) -> None:
        self.topics.pop(topic_id, None)
        self.deleted.add(topic_id)
        if unsure:
            self.unsure.add(topic_id)

    def power_cut(self) -> None:
        for topic in self.topics.values():
            for records in topic.records.values():
                records.acked, records.was_cut = records.synced, True

    # -- what must be so after a start

    def check_metadata(self, image: MetadataImage) -> None:
        for topic_id, topic in list(self.topics.items()):
            found = image.topics_by_id.get(topic_id)
            if found is None:
                assert topic.is_leaving, f"{topic.name} was made, and is not there"
                self.gone(topic_id, unsure=True)
            else:
                topic.is_leaving = False
        for found in image.topics_by_id.values():
            self.made(found.id, found.name)

    def check_log(self, log: PartitionLog) -> None:
        """Hold a log that is served against what was promised."""
        topic = self.topics[log.topic_id]
        where = f"{topic.name}-{log.partition} in {log.directory}"
        promised = topic.of(log.partition)
        start, end = log.log_start_offset, log.log_end_offset
        assert end >= promised.acked, f"{where}: ends at {end}, not at {promised.acked}"
        assert start >= promised.start, f"{where}: begins at {start}, {promised.start} was answered"
        assert start <= promised.start_asked, f"{where}: nobody asked for a start at {start}"
        assert not log.epoch_file.lost, f"{where}: {log.epoch_file.lost}"
        found: dict[int, bytes] = {}
        offset = start
        while offset < end:
            data = read_bytes(log, offset, 1 << 20)
            assert data, f"{where}: nothing at {offset}, it ends at {end}"
            for position, header in iter_batches(data):
                found |= {r.offset: r.value or b"" for r in iter_records(data, position)}
                epoch = log.epochs.epoch_for(max(header.base_offset, start))
                assert epoch == header.partition_leader_epoch, (
                    f"{where}: {header.base_offset} is of epoch {header.partition_leader_epoch}, "
                    f"the chain says {epoch}"
                )
                offset = header.next_offset
        found = {at: value for at, value in found.items() if at >= start}
        assert list(found) == list(range(start, end)), f"{where}: a hole"
        for at, value in found.items():
            assert value in promised.given.get(at, ()), f"{where}: another's record at {at}"
        promised.acked = end
        if promised.was_cut:  # what is read back from the disk stays
            promised.synced, promised.was_cut = end, False
            promised.given = {at: [value] for at, value in found.items()}

    def check_names(
        self, paths: Iterable[Path], logs: Mapping[str, bytes], offline: Collection[str]
    ) -> None:
        """Hold the names in log directories that work against the logs that are open.

        Args:
            paths: of the log directories.
            logs: topic ids by path.
            offline: names of those whose files in another directory are waited for.
        """
        for path in paths:
            for name in os.listdir(path):
                at = path / name
                renamed = parse_renamed_dir(name)
                if renamed is not None and renamed[1] == "stray":
                    self._check_stray(at)
                elif name not in offline and name.startswith("t") and parse_partition_dir(name):
                    is_open = logs.get(str(at)) == _id_of(at)
                    assert is_open, f"{at} is nobody's"

    def _check_stray(self, path: Path) -> None:
        topic_id = _id_of(path)
        size = sum(one.stat().st_size for one in path.glob("*.log"))
        hides_something = topic_id in self.topics and size > 0
        assert not hides_something, f"{path} hides {size} bytes"
        is_known = path.name in self.strays  # it was put aside when its topic was there
        self.strays.add(path.name)
        is_back = topic_id in self.deleted - self.unsure and not is_known
        assert not is_back, f"{path} was answered to be gone, and a start found it"


def _id_of(path: Path) -> bytes | None:
    try:
        return parse_partition_metadata((path / PARTITION_METADATA).read_bytes())
    except (FileNotFoundError, CorruptFileError):
        return None
