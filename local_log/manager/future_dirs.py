"""The directory of a log that will replace another: its creation, and its handling at a start.

It is in the same log directory as the present one, with Kafka's name for such a log,
`<topic>-<partition>.<32 hex>-future`. Its first file is `tidemark-future`. It names the partition,
since the topic in the directory's name may be cut, and shows if the whole content is durable:

    tidemark-future 1
    topic orders
    topic-id Zm9vYmFyYmF6cXV4MTIzNA
    partition 3
    offset 4000
    log-start 100
    complete 1
    crc 0a1b2c3d

The swap: (1) the present directory is renamed to `-delete`, durably; (2) the checkpoints get the
ends of the new log, durably; (3) the future directory gets the partition's name; (4) the log is
opened, which makes that name durable and then removes the marker. So a start that finds a complete
one and no directory of the partition continues at 2. If the partition has a directory, 1 has not
happened, and the future one is removed. In all other cases nothing proves its state, and it stays.

If a log moves to another log directory, its future directory is there (`moving`), and the marker
names the log directory of its source. Step 2 precedes step 1 then. A start swaps it in only if the
source directory works and does not have the partition. A directory that is absent may have records
that the copy lacks. If the partition is still there, the move begins again, see `Loaded.moves`.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import epoch_checkpoint, producer_snapshot
from kafka_protocol.files.meta_properties import dump_partition_metadata
from kafka_protocol.files.sealed import seal, unseal
from kafka_protocol.files.segment_names import partition_dir, renamed_dir
from kafka_protocol.types import EpochEntry, TopicPartition
from kafka_protocol.wire.primitives import uuid_from_text, uuid_to_text
from local_log.checked_files import SIDECAR, CheckedFiles, Owner
from local_log.config import LogConfig
from local_log.file_names import (
    EPOCH_CHECKPOINT,
    FUTURE_MARKER,
    LOG,
    MOVED_MARK,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    path_of,
)
from local_log.leader_epoch_cache import LeaderEpochCache
from local_log.manager.log_dir import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    LogDir,
)
from local_log.recovery.acceptance import NOTHING, Accepted, write_accepted
from local_log.segment.segment import LogSegment
from runtime.disk import Disk
from runtime.incidents import Incident

log = logging.getLogger(__name__)

_HEAD: Final = "tidemark-future 1"
_MOVED_HEAD: Final = "tidemark-moved 1"


class NewBeginning(NamedTuple):
    """Restart offset of a log, and its state there.

    Attributes:
        offset: Of the first segment: log end, high watermark and recovery point.
        log_start: At most `offset`; offsets in between are remote.
        chain: Epochs from `log_start` on at least; epochs outside of the range are dropped.
        producer_snapshot: Kafka's file, as of `offset`.
        accepted: Acceptances to keep; an adopted end in it is made when the log is opened.
    """

    offset: int
    log_start: int
    chain: Sequence[EpochEntry]
    producer_snapshot: bytes
    accepted: Accepted = NOTHING

    def clipped_chain(self) -> list[EpochEntry]:
        """Return the epochs of [log start, offset).

        Raises:
            CorruptFileError: The chain does not cover the range.
        """
        chain = LeaderEpochCache(self.chain).between(self.log_start, self.offset)
        if self.log_start == self.offset:
            return []
        if not chain or chain[0].start_offset > self.log_start:
            raise CorruptFileError(f"no epoch of the chain holds the log start {self.log_start}")
        return chain


class Moved(NamedTuple):
    """Facts in the marker of a log that comes from another log directory.

    Attributes:
        source: Id of that directory.
        high_watermark: Of the log.
        cleaned: Everything below is clean; -1: never cleaned.
    """

    source: bytes
    high_watermark: int = 0
    cleaned: int = -1


class Marker(NamedTuple):
    """Content of `tidemark-future`.

    Attributes:
        offset: End of the log; everything below is flushed.
        moved: For a log that comes from another log directory.
    """

    topic_id: bytes
    topic_partition: TopicPartition
    offset: int
    log_start: int
    is_complete: bool = False
    moved: Moved | None = None

    def checkpoints(self) -> dict[str, int | None]:
        """Return the checkpoint entries of the log by file name; None: no entry."""
        moved = self.moved
        return {
            LOG_STARTS: self.log_start,
            RECOVERY_POINTS: self.offset,
            HIGH_WATERMARKS: self.offset if moved is None else moved.high_watermark,
            CLEANER_OFFSETS: None if moved is None or moved.cleaned < 0 else moved.cleaned,
        }


def dump_marker(marker: Marker) -> bytes:
    """Encode the file."""
    lines = [
        _HEAD,
        f"topic {marker.topic_partition.topic}",
        f"topic-id {uuid_to_text(marker.topic_id)}",
        f"partition {marker.topic_partition.partition}",
        f"offset {marker.offset}",
        f"log-start {marker.log_start}",
        f"complete {int(marker.is_complete)}",
    ]
    if marker.moved is not None:
        lines += [
            f"from {uuid_to_text(marker.moved.source)}",
            f"high-watermark {marker.moved.high_watermark}",
            f"cleaned {marker.moved.cleaned}",
        ]
    return seal(lines)


def parse_marker(data: bytes) -> Marker:
    """Decode the file.

    Raises:
        CorruptFileError: Cut, changed, or of another version.
    """
    lines = unseal(data, head=_HEAD)
    try:
        facts = dict(line.split(" ", 1) for line in lines)
        moved = None
        if "from" in facts:
            source = uuid_from_text(facts["from"])
            moved = Moved(source, int(facts["high-watermark"]), int(facts["cleaned"]))
        return Marker(
            uuid_from_text(facts["topic-id"]),
            TopicPartition(facts["topic"], int(facts["partition"])),
            int(facts["offset"]),
            int(facts["log-start"]),
            facts["complete"] == "1",
            moved,
        )
    except (ValueError, KeyError) as error:
        raise CorruptFileError(f"{FUTURE_MARKER}: {error!r}") from error


# -- creation


def write_future(
    disk: Disk,
    path: Path,
    marker: Marker,
    beginning: NewBeginning,
    *,
    config: LogConfig,
    now_ms: int,
) -> None:
    """Create the directory with the files of a log that begins there; durable on return.

    Args:
        disk: Of the log directory.
        path: Of the directory, which must not exist.
        marker: Partition and begin of the log.
        beginning: Content of the other files.
        config: Of the topic.
        now_ms: Wall clock.

    Raises:
        CorruptFileError: The chain has a gap, or the snapshot is damaged; nothing was created.
        OSError: The disk failed.
    """
    chain = beginning.clipped_chain()
    producer_snapshot.check(beginning.producer_snapshot)
    topic_id, partition = marker.topic_id, marker.topic_partition.partition
    disk.make_dirs(path)
    disk.atomic_write(path / FUTURE_MARKER, dump_marker(marker))
    files = CheckedFiles(disk, path, owner=Owner(topic_id, partition))
    files.begin(
        {
            PARTITION_METADATA: dump_partition_metadata(topic_id),
            EPOCH_CHECKPOINT: epoch_checkpoint.dump(chain),
        }
    )
    snapshot = path_of(path, beginning.offset, PRODUCER_SNAPSHOT)
    file = disk.open_empty(snapshot)
    disk.write_at(file, 0, beginning.producer_snapshot)
    file.close()
    segment = LogSegment.create(
        disk, path, beginning.offset, index_bytes=config.segment_index_bytes, now_ms=now_ms
    )
    segment.become_inactive()
    segment.release()
    if beginning.accepted != NOTHING:
        write_accepted(disk, path, beginning.accepted)
    for name in (SIDECAR, PARTITION_METADATA, EPOCH_CHECKPOINT, snapshot.name):
        disk.fsync_path(path / name)
    disk.fsync_path(path_of(path, beginning.offset, LOG))
    disk.fsync_path(path)
    disk.fsync_path(path.parent)
    disk.atomic_write(path / FUTURE_MARKER, dump_marker(marker._replace(is_complete=True)))


def remove_future(disk: Disk, tp: TopicPartition, path: Path, unique: bytes) -> None:
    """Remove the directory; a kill leaves all of it, or a rest that the next start removes.

    It is renamed first: only its marker identifies it, and a power cut could leave the rest without
    the marker.

    Args:
        disk: Of the directory.
        tp: Its partition.
        path: Of the directory.
        unique: 16 random bytes.

    Raises:
        OSError: The disk failed.
    """
    target = path.parent / renamed_dir(tp, unique, "delete")
    disk.rename(path, target, durable=True)
    disk.remove_tree(target)


def moved_mark(directory_id: bytes) -> bytes:
    """Make the file that marks a log as moved to this log directory, which has its checkpoints.

    Until the metadata has the move, a start would otherwise use the former directory's.
    """
    return seal([_MOVED_HEAD, f"to {uuid_to_text(directory_id)}"])


# -- at a start


def is_moved_here(directory: LogDir, path: Path) -> bool:
    """True if a running broker moved the log at `path` to this log directory.

    Raises:
        OSError: The disk failed.
    """
    try:
        return directory.disk.read_file(path / MOVED_MARK) == moved_mark(directory.directory_id)
    except FileNotFoundError:
        return False


class FoundFuture(NamedTuple):
    """A future directory with a valid marker."""

    directory: LogDir
    path: Path
    marker: Marker


def look_at_future(directory: LogDir, path: Path) -> FoundFuture | None:
    """Read the marker of a directory with a future name.

    Returns:
        None without a valid marker. Such a directory stays, unless it is empty.

    Raises:
        OSError: The disk failed.
    """
    disk = directory.disk
    try:
        return FoundFuture(directory, path, parse_marker(disk.read_file(path / FUTURE_MARKER)))
    except (FileNotFoundError, CorruptFileError) as error:
        if set(disk.list_dir(path)) <= {FUTURE_MARKER + ".tmp"}:
            disk.remove_tree(path)  # a kill before its marker was written
        else:
            log.warning("future directory is left alone: %s reason=%s", path, error)
    return None


def settle_future(future: FoundFuture, unique: bytes, *, is_there: bool) -> bool:
    """Complete the swap if it had begun, before logs are opened; otherwise remove the directory.

    Args:
        future: The directory.
        unique: 16 random bytes.
        is_there: The partition has a directory, in any log directory.

    Returns:
        True if it has become the partition's directory.

    Raises:
        OSError: The disk failed.
    """
    directory, path, marker = future
    tp, disk = marker.topic_partition, directory.disk
    target = directory.path / partition_dir(tp)
    if is_there:
        log.info("swap had not begun, its future directory is removed: %s", path)
        remove_future(disk, tp, path, unique)
        return False
    if not marker.is_complete:
        _log_waiting(tp, path, "it is not whole, and the own directory is missing")
        return False
    if disk.exists(target):
        _log_waiting(tp, path, f"{target} is no directory")
        return False
    for name in (RECOVERY_POINTS, LOG_STARTS):
        if not directory.is_sound(name):
            # A new version would hide that entries were lost.
            _log_waiting(
                tp, path, f"{directory.path / name} is damaged; the next start finishes it"
            )
            return False
    begin_at(directory, marker)
    disk.rename(path, target)  # durable once it is opened
    log.warning("swap is finished: partition=%s offset=%d", tp, marker.offset)
    return True


def begin_at(directory: LogDir, marker: Marker) -> None:
    """Write the begin of a log into the checkpoints of a log directory; durable on return.

    Each write replaces the whole file of a directory with thousands of logs. So the holder of the
    lock writes for all callers that wait for it.

    Raises:
        OSError: The disk failed.
    """
    mine = Beginning(marker)
    directory.beginnings.append(mine)
    with directory.checkpointing:
        if mine.is_written:
            return
        waiting, directory.beginnings = directory.beginnings, []
        group = {mine, *tuple(waiting)}  # not in it if another caller's write for both has failed
        begun = {one.marker.topic_partition: one.marker for one in group}
        says = {tp: one.checkpoints() for tp, one in begun.items()}
        for name in (LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
            before = directory.entries.get(name, {})
            after = {tp: at for tp, at in before.items() if tp not in begun}
            after |= {tp: at for tp, of in says.items() if (at := of[name]) is not None}
            if name != CLEANER_OFFSETS or after != before:
                directory.write_checkpoint(name, after)
        for one in group:
            one.is_written = True


class Beginning:
    """A log whose begin is to be written into the checkpoints."""

    __slots__ = ("is_written", "marker")

    def __init__(self, marker: Marker) -> None:
        self.marker, self.is_written = marker, False


def _log_waiting(tp: TopicPartition, path: Path, reason: str) -> None:
    log.error(Incident.COPY_WAITS.line(partition=tp, path=path, reason=reason))
