"""Snapshot files `<end offset>-<epoch>.checkpoint`: the image at one offset, as records.

`bootstrap.checkpoint` and the checkpoint 0-0 of the format step have the same form. Only a complete
snapshot is valid: it ends with a footer, and gets its name once it is on disk. Until then its name
has a random part, so that two concurrent writes use different files.

Source: KIP-630, KIP-853 for the voters; checked against Kafka's own snapshots.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from kafka_protocol.records.control import (
    ControlType,
    control_batch,
    snapshot_footer,
    snapshot_header,
)
from kafka_protocol.records.records import iter_records
from metadata_topic.image.records import MetadataRecord, encode_record
from metadata_topic.quorum.errors import UnusableMetadataError
from metadata_topic.quorum.log.batches import (
    Control,
    CorruptBatchError,
    known_controls,
    quorum_entries,
    read_records,
    value_batch,
    voters_of,
    whole_batches,
)
from metadata_topic.quorum.log.decision_batches import pack
from metadata_topic.raft.messages import BOOTSTRAP_ID, SUFFIX, SnapshotId
from metadata_topic.raft.voter_history import QuorumFacts
from metadata_topic.raft.voters import VoterSet
from runtime.disk import Disk
from runtime.rng import Rng

PART_SUFFIX: Final = ".checkpoint.part"
DELETED_SUFFIX: Final = ".checkpoint.deleted"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint\Z")
_RECORDS_PER_BATCH: Final = 500
_RECORDS_AT_ONCE: Final = 100  # a few milliseconds
_BATCH_BYTES_MAX: Final = 8 << 20  # Kafka's reader takes no larger ones


class CorruptSnapshotError(UnusableMetadataError):
    """A snapshot file is incomplete, damaged, or of another cluster."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A complete snapshot; its records are decoded on access.

    Attributes:
        last_contained_timestamp_ms: Of the newest log record in it.
        kraft_version: 0 if the snapshot has none.
        voters: None for kraft.version 0.
        data: The file.
        cluster_id: None in snapshots of Kafka and of the format step.
    """

    last_contained_timestamp_ms: int
    kraft_version: int
    voters: VoterSet | None
    data: bytes
    cluster_id: str | None = None

    def facts(self, snapshot_id: SnapshotId) -> QuorumFacts:
        """Quorum facts at its end; those of the format step are in no log."""
        return QuorumFacts(self.kraft_version, self.voters, in_log=snapshot_id != BOOTSTRAP_ID)

    @property
    def records(self) -> list[MetadataRecord]:
        """All records at once; raises as `batches` does."""
        return [record for batch in self.batches() for record in batch]

    def batches(self) -> Iterator[Iterator[MetadataRecord]]:
        """Records, batch by batch: those of 100,000 partitions take 100 MB at once.

        Raises:
            UnknownMetadataRecordError, InvalidRecordError, MalformedMessageError: This version
                cannot read a record.
        """
        for position, header in whole_batches(self.data):
            if not header.is_control:
                yield read_records(self.data, position)


def snapshot_chunks(
    records: Iterable[MetadataRecord],
    *,
    snapshot_id: SnapshotId,
    last_contained_timestamp_ms: int,
    now_ms: Callable[[], int],
    kraft_version: int = 0,
    voters: VoterSet | None = None,
    cluster_id: str | None = None,
) -> Iterator[bytearray]:
    """Build a snapshot in pieces, so that the caller can run other work in between.

    Args:
        records: Content of the snapshot.
        snapshot_id: Its epoch goes into every batch.
        last_contained_timestamp_ms: Of the newest log record contained; 0 in a bootstrap file.
        now_ms: Called for each batch.
        kraft_version: With 1 the voters are written too.
        voters: Required with kraft.version 1.
        cluster_id: Of the metadata, if known.

    Yields:
        Bytes of the file, one batch per piece, with empty pieces in between.
    """
    epoch = snapshot_id.epoch
    controls = [snapshot_header(last_contained_timestamp_ms, cluster_id=cluster_id)]
    if kraft_version > 0:
        assert voters is not None
        controls += quorum_entries(kraft_version, voters)
    yield control_batch(controls, base_offset=0, leader_epoch=epoch, timestamp_ms=now_ms())
    offset = len(controls)
    remaining = iter(records)
    while True:
        some: list[bytes] = []
        while len(some) < _RECORDS_PER_BATCH:
            more = [encode_record(record) for record in islice(remaining, _RECORDS_AT_ONCE)]
            if not more:
                break
            some += more
            yield bytearray()
        if not some:
            break
        for run in pack(some, _BATCH_BYTES_MAX):
            yield value_batch(run, base_offset=offset, epoch=epoch, timestamp_ms=now_ms())
            offset += len(run)
    yield control_batch(
        [snapshot_footer()], base_offset=offset, leader_epoch=epoch, timestamp_ms=now_ms()
    )


def read_snapshot(data: bytes) -> Snapshot:
    """Check a snapshot file and decode its control records.

    Raises:
        CorruptSnapshotError: Cut, damaged, or without header or footer.
        InvalidRecordError, MalformedMessageError: This version cannot read a control record.
    """
    controls: list[Control] = []
    expected = 0
    try:
        for position, header in whole_batches(data):
            if header.base_offset != expected:
                raise CorruptSnapshotError(f"offset {header.base_offset} where {expected} is due")
            expected = header.next_offset
            if controls and controls[-1][0] == ControlType.SNAPSHOT_FOOTER:
                raise CorruptSnapshotError("there are batches behind the footer")
            if header.is_control:
                controls += known_controls(iter_records(data, position))
            if not controls or controls[0][0] != ControlType.SNAPSHOT_HEADER:
                raise CorruptSnapshotError("a snapshot begins with a header")
    except CorruptBatchError as error:
        raise CorruptSnapshotError(str(error)) from error
    if not controls or controls[-1][0] != ControlType.SNAPSHOT_FOOTER:
        raise CorruptSnapshotError("a snapshot ends with a footer")
    values = dict(controls)
    version = values.get(ControlType.KRAFT_VERSION)
    voters = values.get(ControlType.KRAFT_VOTERS)
    head = values[ControlType.SNAPSHOT_HEADER]
    return Snapshot(
        last_contained_timestamp_ms=head.last_contained_log_timestamp,
        kraft_version=0 if version is None else version.kraft_version,
        voters=None if voters is None else voters_of(voters),
        data=data,
        cluster_id=head.cluster_id,
    )


class SnapshotFiles:
    """Snapshots of one metadata directory.

    Attributes:
        cluster_id: A snapshot of another cluster counts as damaged; None: no check.
    """

    def __init__(
        self, directory: Path, disk: Disk, rng: Rng, *, cluster_id: str | None = None
    ) -> None:
        self.cluster_id = cluster_id
        self._directory = directory
        self._disk = disk
        self._rng = rng

    def path(self, snapshot_id: SnapshotId) -> Path:
        """Path of a snapshot."""
        return self._directory / snapshot_id.file_name

    def ids(self) -> list[SnapshotId]:
        """Ids of all complete snapshots, oldest first; empty if there is no directory."""
        try:
            names = self._disk.list_dir(self._directory)
        except FileNotFoundError:
            return []
        found = (_NAME.match(name) for name in names)
        return sorted(SnapshotId(int(m[1]), int(m[2])) for m in found if m)

    def remove_leftovers(self) -> None:
        """Remove files of interrupted writes and deletions."""
        for name in self._disk.list_dir(self._directory):
            if name.endswith((PART_SUFFIX, DELETED_SUFFIX)):
                self._disk.unlink(self._directory / name)

    def read(self, snapshot_id: SnapshotId) -> Snapshot:
        """Read and check one snapshot; raises as `check`."""
        return self.check(self._disk.read_file(self.path(snapshot_id)))

    def check(self, data: bytes) -> Snapshot:
        """Check the bytes of a snapshot; raises as `read_snapshot`, and for another cluster's."""
        found = read_snapshot(data)
        if self.cluster_id and found.cluster_id not in (None, self.cluster_id):
            raise CorruptSnapshotError(f"it is a snapshot of cluster {found.cluster_id}")
        return found

    def write(self, snapshot_id: SnapshotId, chunks: Iterable[bytes | bytearray]) -> int:
        """Write a snapshot; its name appears only when the whole file is on disk.

        Returns:
            Its size in bytes, once file and name are durable.

        Raises:
            OSError: The disk failed; a `.part` file may be left, which the next start removes.
        """
        part = self.part_path(snapshot_id)
        file = self._disk.open_append(part)
        try:
            try:
                for chunk in chunks:
                    self._disk.append(file, chunk)
                self._disk.fsync(file)
                size_bytes = file.size()
            finally:
                file.close()
            self._disk.rename(part, self.path(snapshot_id), durable=True)
        except OSError:
            with suppress(OSError):  # on a full disk each try would leave one
                self._disk.unlink(part)
            raise
        return size_bytes

    def read_part(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes:
        """Read bytes of a snapshot from `position` on; empty at its end.

        Raises:
            OSError: The disk failed, or the snapshot was deleted.
        """
        file = self._disk.open_read(self.path(snapshot_id))
        try:
            size_bytes = min(max_bytes, file.size() - position)
            return self._disk.read_at(file, position, size_bytes) if size_bytes > 0 else b""
        finally:
            file.close()

    def part_path(self, snapshot_id: SnapshotId) -> Path:
        """Return a new name for a snapshot that is not complete yet."""
        random_part = self._rng.uuid().hex()
        name = snapshot_id.file_name.replace(SUFFIX, f"-{random_part}{PART_SUFFIX}")
        return self._directory / name

    def size_bytes(self, snapshot_id: SnapshotId) -> int:
        """Size of one snapshot."""
        return self._disk.size(self.path(snapshot_id))

    def put_aside(self, snapshot_id: SnapshotId) -> None:
        """Rename a damaged snapshot, so that it is never read again."""
        path = self.path(snapshot_id)
        self._disk.rename(path, path.with_name(path.name + ".corrupt"), durable=True)

    def modified_ms(self, snapshot_id: SnapshotId) -> int:
        """Time of its write, in ms of the wall clock."""
        return self._disk.modified_ms(self.path(snapshot_id))

    def delete(self, snapshot_id: SnapshotId) -> None:
        """Delete a snapshot."""
        self._disk.unlink(self.path(snapshot_id))
