"""A committed batch of the metadata log, noted in every log directory of a broker.

The broker's own copy of the metadata log proves nothing of its cluster: it may be fetched again.
So what its partitions rest on is noted beside them, and before a start takes part the leader is
asked for that very batch. What was committed is in the log of every later leader; one that has
another batch there, or none, leads a younger log, or an older copy of this one: in its metadata
this broker's partitions are not, and what it lacks must not be set aside.

    tidemark-committed-metadata 1
    4711 3 1a2b3c4d
    crc 0a1b2c3d

Base offset, leader epoch and the batch's own CRC-32C, which replicas never change. The file is
written once the broker has registered, then each minute, and at a stop. Without it, or where it is
damaged, nothing is compared. DIFFERS: Kafka notices none of this and puts the partitions aside.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from kafka_protocol.errors import CorruptFileError, ErrorCode
from kafka_protocol.files.sealed import seal, unseal
from kafka_protocol.records.batch import HEADER_SIZE, Buffer, read_header
from local_log.manager.log_dir import COMMITTED_METADATA, INCARNATION_HISTORY
from metadata_topic.quorum.metadata_loader import CommittedBatch
from metadata_topic.raft.messages import FetchResponse
from runtime.disk import Disk
from runtime.executors import make_mutex

KEEP_MS: Final = 60_000
_HEAD: Final = f"{COMMITTED_METADATA} 1"

Marks = Mapping[CommittedBatch, Sequence[Path]]
"""The directories that note each batch."""


class Comparison(Enum):
    """What a leader's log has where a committed batch was noted."""

    SAME = "the batch"
    OTHER = "another batch, or none"
    TRIMMED = "nothing any more: a snapshot stands for it"


def dump_mark(batch: CommittedBatch) -> bytes:
    """Write the file."""
    return seal([_HEAD, f"{batch.base_offset} {batch.epoch} {batch.crc:08x}"])


def parse_mark(data: bytes) -> CommittedBatch:
    """Read the file.

    Raises:
        CorruptFileError: cut, changed, or of another version.
    """
    try:
        (line,) = unseal(data, head=_HEAD)
        offset, epoch, crc = line.split(" ")
        return CommittedBatch(int(offset), int(epoch), int(crc, 16))
    except ValueError as error:
        raise CorruptFileError(f"{COMMITTED_METADATA}: {error}") from error


def read_marks(disk: Disk, directories: Iterable[Path]) -> Marks:
    """The batches that directories note, newest first; one that cannot be read is excluded.

    Directories differ where one was away for a while, or is an older copy. Any of them may be of
    another log than the rest: the broker came to follow a younger log while that one was away.
    """
    found: dict[CommittedBatch, list[Path]] = {}
    for path in directories:
        try:
            batch = parse_mark(disk.read_file(path / COMMITTED_METADATA))
        except (OSError, CorruptFileError):
            continue
        found.setdefault(batch, []).append(path)
    return {batch: found[batch] for batch in sorted(found, reverse=True)}


def compare(batch: CommittedBatch, answer: FetchResponse, records: Buffer) -> Comparison | None:
    """What a leader's log has at the place of `batch`.

    Args:
        batch: committed, so no leader of an epoch that is not older can lack it.
        answer: to a Fetch of its base offset, with its epoch as the last one fetched.
        records: of the answer.

    Returns:
        None: the answer says nothing of it; ask again.
    """
    if answer.error is not ErrorCode.NONE:
        return None
    if answer.snapshot_id is not None:
        return Comparison.TRIMMED
    if answer.diverging is not None or len(records) < HEADER_SIZE:
        return Comparison.OTHER
    header = read_header(records, 0)
    there = CommittedBatch(header.base_offset, header.partition_leader_epoch, header.crc)
    return Comparison.SAME if there == batch else Comparison.OTHER


def remedy(marks: Marks) -> str:
    """What a person does about a log that is not ours."""
    paths = [path for noted in marks.values() for path in noted]
    files = ", ".join(
        str(path / name) for path in paths for name in (COMMITTED_METADATA, INCARNATION_HISTORY)
    )
    return (
        "Nothing was changed here. Put the controllers' newest metadata directory back, or correct "
        "the addresses. If those metadata are lost permanently, the partitions of these "
        "directories "
        f"are in no metadata: remove {files}, and the start puts them aside"
    )


class MarkKeeper:
    """Notes the newest committed batch; `keep` waits for disks."""

    def __init__(
        self,
        disk: Disk,
        newest: Callable[[], CommittedBatch | None],
        directories: Callable[[], Iterable[Path]],
    ) -> None:
        """Nothing is written yet.

        Args:
            disk: files.
            newest: the last committed batch that was applied; None before the first.
            directories: the log directories that work.
        """
        self._disk, self._newest, self._directories = disk, newest, directories
        self._kept: CommittedBatch | None = None
        self._keeping = make_mutex()

    def keep(self) -> None:
        """Note it where it is news; survives a power cut on return.

        Raises:
            OSError: a disk failed; the other directories have it.
        """
        with self._keeping:  # a stop may meet a pass of housekeeping
            self._keep()

    def _keep(self) -> None:
        batch = self._newest()
        if batch is None or batch == self._kept:
            return
        failed: OSError | None = None
        for path in self._directories():
            try:
                self._disk.atomic_write(path / COMMITTED_METADATA, dump_mark(batch))
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed
        self._kept = batch
