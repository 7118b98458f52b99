"""Producer snapshots of a partition directory.

`<offset>.snapshot` has the state of the producers before `offset`.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from kafka_protocol.errors import CorruptFileError
from kafka_protocol.files import producer_snapshot
from kafka_protocol.files.producer_snapshot import ProducerEntry
from local_log.file_names import DELETED, PRODUCER_SNAPSHOT, parse_segment_file, path_of
from runtime.disk import Disk

log = logging.getLogger(__name__)


class ProducerSnapshots:
    """The snapshot files of one directory, by offset."""

    __slots__ = ("_directory", "_disk", "offsets")

    def __init__(self, disk: Disk, directory: Path, names: Iterable[str]) -> None:
        self._disk = disk
        self._directory = directory
        parsed = (parse_segment_file(name) for name in names)
        self.offsets = sorted(p[0] for p in parsed if p is not None and p[1] == PRODUCER_SNAPSHOT)

    def copy(self) -> "ProducerSnapshots":
        """Return a view of the same directory for a pool thread.

        Removals there do not change this one.
        """
        twin = ProducerSnapshots(self._disk, self._directory, ())
        twin.offsets = list(self.offsets)
        return twin

    def path(self, offset: int) -> Path:
        """Path of the snapshot at `offset`, existing or not."""
        return path_of(self._directory, offset, PRODUCER_SNAPSHOT)

    def write(self, offset: int, entries: Iterable[ProducerEntry]) -> None:
        """Write a snapshot of the state before `offset`; the log's next flush makes it durable."""
        self.write_file(offset, entries)
        self.expect(offset)

    def write_file(self, offset: int, entries: Iterable[ProducerEntry]) -> None:
        """Write the file of an expected snapshot; on any thread."""
        data = producer_snapshot.dump(entries)
        self._disk.atomic_write(self.path(offset), data, durable=False)

    def expect(self, offset: int) -> None:
        """Add an offset to the list before the file is written."""
        if offset not in self.offsets:
            self.offsets = sorted([*self.offsets, offset])

    def load_newest(self, *, start: int, end: int) -> tuple[int, Iterator[ProducerEntry]] | None:
        """Read the newest snapshot with an offset in [start, end]; damaged ones are removed.

        Returns:
            Its offset and entries, or None if there is none.
        """
        for offset in reversed(list(self.offsets)):
            if not start <= offset <= end:
                continue
            try:
                data = self._disk.read_file(self.path(offset))
                return offset, producer_snapshot.entries(data)
            except (CorruptFileError, FileNotFoundError) as error:
                log.warning(
                    "producer snapshot is damaged, using an older one: path=%s reason=%s",
                    self.path(offset),
                    error,
                )
                self.remove([offset])
        return None

    def remove(self, offsets: Iterable[int]) -> None:
        """Unlink snapshots, durably.

        After a power cut a restored one would have the state of batches that were cut off.
        """
        gone = set(offsets)
        for offset in gone:
            self._disk.unlink(self.path(offset))
        if gone:
            self._disk.fsync_path(self._directory)
        self.offsets = [offset for offset in self.offsets if offset not in gone]

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """Unlink snapshots without a segment, except for a newest one above all segments."""
        bases = set(base_offsets)
        newest = self.offsets[-1] if self.offsets else None
        keep_newest = newest is not None and newest > max(bases, default=-1)
        self.remove(
            [o for o in self.offsets if o not in bases and not (keep_newest and o == newest)]
        )

    def forget(self, offsets: Iterable[int]) -> None:
        """Remove the offsets of deleted segments from the list; their files are renamed later."""
        gone = set(offsets)
        self.offsets = [offset for offset in self.offsets if offset not in gone]

    def rename_away(self, offset: int) -> list[Path]:
        """Rename a forgotten snapshot; returns its new name if it existed. On any thread.

        The file decides, not `offsets`: a copy to the remote tier may have created or removed it.
        """
        path = self.path(offset)
        if not self._disk.exists(path):
            return []
        target = path.with_name(path.name + DELETED)
        self._disk.rename(path, target)
        return [target]
