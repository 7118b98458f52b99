"""A committed batch of the metadata log, noted in each log directory of a broker.

The broker's own copy of the metadata log does not identify its cluster: it may be fetched again. So
a batch on which its partitions depend is noted beside them. Before a start takes part, it compares
that batch with the leader's log. Each later leader has all committed batches. A leader
with another batch at that offset, or none, has a younger log, or an older copy of this one. Its
metadata do not have this broker's partitions, so a start must not put aside those that they lack.

    tidemark-committed-metadata 1
    4711 3 1a2b3c4d
    crc 0a1b2c3d

Base offset, leader epoch and the batch's own CRC-32C, which replicas never change. The file is
written once the broker has registered, then each minute, and at a stop. Without it, or if it is
damaged, nothing is compared. DIFFERS: Kafka detects none of this and puts the partitions aside.
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
    """The leader's log at the offset of a noted batch."""

    SAME = "the batch"
    OTHER = "another batch, or none"
    TRIMMED = "nothing any more: a snapshot stands for it"


def dump_mark(batch: CommittedBatch) -> bytes:
    """Write the file."""
    return seal([_HEAD, f"{batch.base_offset} {batch.epoch} {batch.crc:08x}"])


def parse_mark(data: bytes) -> CommittedBatch:
    """Read the file.

    Raises:
        CorruptFileError: Cut, changed, or of another version.
    """
    try:
        (line,) = unseal(data, head=_HEAD)
        offset, epoch, crc = line.split(" ")
        return CommittedBatch(int(offset), int(epoch), int(crc, 16))
    except ValueError as error:
        raise CorruptFileError(f"{COMMITTED_METADATA}: {error}") from error


def read_marks(disk: Disk, directories: Iterable[Path]) -> Marks:
    """Batches that directories note, newest first; a directory with an unreadable note is left out.

    Directories differ where one was missing for a while, or is an older copy. Each of them may be
    of another log than the rest: the broker may have followed a younger log while it was missing.
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
    """Compare a leader's log with `batch`.

    Args:
        batch: Committed, so no leader of its epoch or a later one can lack it.
        answer: To a Fetch of its base offset, with its epoch as the last fetched one.
        records: Of the answer.

    Returns:
        None: the answer does not decide it; ask again.
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
    """The operator's remedy for a leader's log of another cluster or time."""
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
        """Write nothing yet.

        Args:
            disk: Files.
            newest: The last committed batch that was applied; None before the first.
            directories: The log directories that work.
        """
        self._disk, self._newest, self._directories = disk, newest, directories
        self._kept: CommittedBatch | None = None
        self._keeping = make_mutex()

    def keep(self) -> None:
        """Write the newest batch, if it is a new one; survives a power cut on return.

        Raises:
            OSError: A disk failed; the other directories have it.
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
