"""One pass over one log: reads its segments, writes their successors beside them.

First it finds the newest offset of each key in the dirty part. Then it reads everything from the
first segment on again, and writes the kept records to `.cleaned` files, group by group, with their
indexes, fsynced. It changes no file of the log: the broker puts new segments in place.

A pass takes a `Job`, and yields a `Group` for each new segment and one `Done`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from kafka_protocol.errors import CorruptFileError, KafkaError, TidemarkError
from kafka_protocol.files import txn_index
from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    has_valid_crc,
    read_header,
)
from kafka_protocol.records.compression import inflated
from local_log.cleaner.batch_filter import BatchFilter, Transactions, marker_kind
from local_log.cleaner.offset_map import OffsetMap, whole_records
from local_log.cleaner.policy import SourceSegment, groups
from local_log.file_names import (
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    TXN_INDEX,
    cleaned_path,
    path_of,
)
from local_log.producers.last_batches import unpacked
from local_log.segment.index_builder import IndexBuilder
from local_log.segment.segment import LogSegment
from runtime.disk import Disk, OpenFile

_BATCH_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """Settings of the broker.

    Attributes:
        is_enabled: `log.cleaner.enable`.
        backoff_ms: Pause while no log is due.
        map_bytes: Memory for keys, with the load factor applied.
        buffer_bytes: Size of one read.
        bytes_per_second: Of reads and writes together; 0: no limit.
    """

    is_enabled: bool = True
    backoff_ms: int = 15_000
    map_bytes: int = int((128 << 20) * 0.9)
    buffer_bytes: int = 512 << 10
    bytes_per_second: float = 0.0


class Job(msgspec.Struct, frozen=True, kw_only=True, tag="job"):
    """One pass over one log.

    Attributes:
        number: Of the job; in every answer.
        token: Part of the names of new files, so that they differ from those of an older process.
        segments: From the first one to the first uncleanable offset.
        ahead: Segments after `segments`, the active one up to its end; read only for markers.
        first_dirty: Everything below is clean.
        aborted: Base offsets of segments with a transaction index.
        producers: Packed by `last_batches`.
    """

    number: int
    token: str
    directory: str
    segments: list[SourceSegment]
    ahead: list[SourceSegment]
    first_dirty: int
    aborted: list[int]
    producers: bytes
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    settings: CleanerSettings


class Group(msgspec.Struct, frozen=True, kw_only=True, tag="group"):
    """Some neighbouring segments were cleaned into a new one, whose files are beside them.

    Attributes:
        old: Base offsets of the segments.
        old_bytes: Their total size, from the job.
        size_bytes: Of the new one, which has the base offset of the first.
        max_timestamp, offset_of_max_timestamp, first_timestamp: Of its batches; -1, its base
            offset and -1 without any.
        has_aborted: It has a transaction index.
        is_changed: False if it would equal the only old one; it was dropped then.
    """

    number: int
    old: list[int]
    old_bytes: int
    size_bytes: int
    max_timestamp: int
    offset_of_max_timestamp: int
    first_timestamp: int
    has_aborted: bool
    is_changed: bool

    def segment(self, disk: Disk, directory: Path) -> LogSegment:
        """Return the new segment, as the log takes it."""
        new = LogSegment(disk, directory, self.old[0], self.size_bytes)
        new.set_max_timestamp(self.max_timestamp, self.offset_of_max_timestamp)
        new.has_aborted = self.has_aborted
        if self.size_bytes:
            new.first_timestamp = self.first_timestamp
        return new


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The pass is complete.

    Attributes:
        cleaned_to: Everything below is clean (exclusive).
        map_use: Used part of the map of keys, 0 to 1.
        keys_left: The map had no room for all keys; another pass continues.
    """

    number: int
    cleaned_to: int
    read_bytes: int
    written_bytes: int
    map_use: float
    keys_left: bool


class DamagedBatchError(TidemarkError):
    """A batch of the log is damaged; the log must not be cleaned."""


class LogPass:
    """Executes one job; used once.

    Args:
        job: The job.
        disk: Of the log.
        moved: Called with the number of bytes just read or written; may wait, and may raise to end
            the pass.
    """

    def __init__(self, job: Job, disk: Disk, moved: Callable[[int], None]) -> None:
        self._job, self._disk, self._moved = job, disk, moved
        self._directory = Path(job.directory)
        self._place = 0, 0  # of the last batch read: base offset of its segment, first byte
        self.read_bytes = self.written_bytes = 0

    def run(self) -> Iterator[Group | Done]:
        """Execute the job.

        Yields:
            A `Group` for each new segment, durable except for its names; finally a `Done`.

        Raises:
            DamagedBatchError: Names file and byte.
            OSError: A file cannot be read or written, or was deleted.
        """
        try:
            yield from self._run()
        except KafkaError as error:  # about the last batch read
            raise self._damage(*self._place, error) from error

    def _run(self) -> Iterator[Group | Done]:
        job = self._job
        newest, keys_left = self._newest_offsets()
        end = newest.latest_offset + 1
        sources = [one for one in job.segments if one.base_offset < end]
        batches = BatchFilter(
            newest,
            Transactions(self._aborted(job.segments[0].base_offset)),
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
            round_end=job.segments[-1].end_offset,
            producers=unpacked(job.producers),
        )
        for group in groups(
            sources, segment_bytes=job.segment_bytes, index_bytes=job.segment_index_bytes
        ):
            yield self._clean(group, batches)
        yield Done(
            number=job.number,
            cleaned_to=end,
            read_bytes=self.read_bytes,
            written_bytes=self.written_bytes,
            map_use=newest.utilization,
            keys_left=keys_left,
        )

    def _aborted(self, start: int) -> list[AbortedTransaction]:
        """Aborted transactions whose marker is at or above `start`."""
        entries: list[AbortedTransaction] = []
        for base_offset in self._job.aborted:
            path = path_of(self._directory, base_offset, TXN_INDEX)
            data = self._disk.read_file(path)
            whole = len(data) - len(data) % txn_index.ENTRY_SIZE  # the last entry may be incomplete
            try:
                entries += txn_index.iter_entries(memoryview(data)[:whole])
            except CorruptFileError as error:
                raise DamagedBatchError(f"{path}: {error}") from error
        return [entry for entry in entries if entry.last_offset >= start]

    # -- the first walk -------------------------------------------------------------------------

    def _newest_offsets(self) -> tuple[OffsetMap, bool]:
        """Return the map, and whether another pass must continue."""
        job = self._job
        newest, start = OffsetMap(job.settings.map_bytes), job.first_dirty
        newest.latest_offset = start - 1
        dirty = [source for source in job.segments if source.end_offset > start]
        transactions = Transactions(self._aborted(dirty[0].base_offset))
        batches, keys_left = self._batches(dirty), False
        for header, batch in batches:
            if header.last_offset < start and not header.is_transactional:
                continue
            keys_left = not _note(newest, transactions, header, batch, start)
            if keys_left:
                break
            newest.latest_offset = max(newest.latest_offset, header.last_offset)
        if not keys_left:
            newest.latest_offset = dirty[-1].end_offset - 1
        _look_ahead(transactions, chain(batches, self._batches(job.ahead)))
        return newest, keys_left

    # -- the second walk ------------------------------------------------------------------------

    def _clean(self, group: list[SourceSegment], batches: BatchFilter) -> Group:
        base_offset = group[0].base_offset
        new = _NewSegment(self._disk, self._job, base_offset, self._wrote)
        is_changed = len(group) > 1
        for header, batch in self._batches(group):
            written = batches.written(header, batch)
            is_changed |= written is None or written.data is not batch
            if written is not None:
                new.add(written.header, written.data)
        aborted, batches.transactions.kept = batches.transactions.kept, []
        if is_changed:
            modified_ms = self._disk.modified_ms(self._path(group[-1].base_offset))
            new.finish(aborted, modified_ms)
        else:
            new.drop()
        built = new.indexes
        first = built.first_timestamp
        return Group(
            number=self._job.number,
            old=[source.base_offset for source in group],
            old_bytes=sum(source.size_bytes for source in group),
            size_bytes=built.size_bytes,
            max_timestamp=built.max_timestamp,
            offset_of_max_timestamp=built.offset_of_max_timestamp,
            first_timestamp=-1 if first is None else first,
            has_aborted=bool(aborted),
            is_changed=is_changed,
        )

    def _wrote(self, size: int) -> None:
        self.written_bytes += size
        self._moved(size)

    # -- reading --------------------------------------------------------------------------------

    def _path(self, base_offset: int) -> Path:
        return path_of(self._directory, base_offset, LOG)

    def _batches(
        self, sources: Iterable[SourceSegment]
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Headers and bytes of the batches of some segments, validated."""
        for source in sources:
            yield from self._batches_of(source)

    def _batches_of(self, source: SourceSegment) -> Iterator[tuple[BatchHeader, memoryview]]:
        base_offset, size_bytes = source.base_offset, source.size_bytes
        file = self._disk.open_read(self._path(base_offset))
        position, expected, wanted = 0, base_offset, self._job.settings.buffer_bytes
        while position < size_bytes:
            asked = min(wanted, size_bytes - position)
            chunk = self._disk.read_at(file, position, asked)
            if len(chunk) < asked:
                raise self._damage(base_offset, position, "the file is shorter than it was")
            self.read_bytes += asked
            self._moved(asked)
            view, at, wanted = memoryview(chunk), 0, self._job.settings.buffer_bytes
            while at + HEADER_SIZE <= asked:
                header = read_header(chunk, at)
                size = header.size_bytes
                problem = _problem(header, expected, source.end_offset, size_bytes - position - at)
                if problem:
                    raise self._damage(base_offset, position + at, problem)
                if at + size > asked:
                    wanted = max(wanted, size)
                    break
                if not has_valid_crc(chunk, at, header):
                    raise self._damage(base_offset, position + at, "its checksum is wrong")
                self._place = base_offset, position + at
                yield header, view[at : at + size]
                expected = header.next_offset
                at += size
            if at == 0 and (wanted <= asked or asked == size_bytes - position):
                raise self._damage(base_offset, position, "the last batch is cut")
            position += at

    def _damage(self, base_offset: int, position: int, why: object) -> DamagedBatchError:
        path = self._path(base_offset)
        return DamagedBatchError(f"damaged batch at byte {position} of {path}: {why}")


def _problem(header: BatchHeader, expected: int, end_offset: int, left: int) -> str:
    if header.magic != MAGIC:
        return f"its magic is {header.magic}"
    if header.batch_length < _BATCH_LENGTH_MIN or header.size_bytes > left:
        return f"it has {header.size_bytes} bytes of {left} that are left"
    # The checksum does not cover the base offset.
    if not expected <= header.base_offset <= header.last_offset < end_offset:
        held = f"{header.base_offset} to {header.last_offset}"
        return f"it holds offsets {held}, not from {expected} to below {end_offset}"
    return ""


def _note(
    newest: OffsetMap,
    transactions: Transactions,
    header: BatchHeader,
    batch: memoryview,
    start: int,
) -> bool:
    """Note the keys of a batch; False if the map had no room for all of them."""
    if header.is_control:
        transactions.marker(header, marker_kind(batch, header))
        return True
    if transactions.data(header) or not header.record_count or header.last_offset < start:
        return True
    pieces = inflated(header.codec, batch[HEADER_SIZE:])
    return all(
        newest.add_records(data, count, header.base_offset, start)
        for data, count in whole_records(pieces, header.record_count)
    )


def _look_ahead(
    transactions: Transactions, batches: Iterator[tuple[BatchHeader, memoryview]]
) -> None:
    """Check that no transaction with keys in the map is aborted.

    Its marker may follow the batches read: if the map was full, or after the cleanable part. The
    last stable offset is above the transaction, so the marker exists.

    Raises:
        InvalidRecordError: One is aborted, and no index lists it.
    """
    waiting = transactions.undecided
    while waiting:
        located = next(batches, None)
        if located is None:
            return
        header, batch = located
        if header.is_control and header.producer_id in waiting:
            transactions.marker(header, marker_kind(batch, header))
            waiting &= transactions.undecided


class _NewSegment:
    """The `.cleaned` files of a new segment."""

    def __init__(
        self, disk: Disk, job: Job, base_offset: int, wrote: Callable[[int], None]
    ) -> None:
        self._disk, self._wrote = disk, wrote
        self._paths = {
            suffix: cleaned_path(Path(job.directory), base_offset, suffix, job.token)
            for suffix in (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
        }
        self._buffer_bytes = job.settings.buffer_bytes
        self._buffer = bytearray()
        self.indexes = IndexBuilder(
            base_offset,
            interval_bytes=job.index_interval_bytes,
            index_bytes=job.segment_index_bytes,
        )
        self._file: OpenFile | None = None

    def add(self, header: BatchHeader, data: bytes | bytearray | memoryview) -> None:
        """Append a batch."""
        self.indexes.add(header)
        self._buffer += data
        if len(self._buffer) >= self._buffer_bytes:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            self._file = self._disk.open_append(self._paths[LOG])
        self._disk.append(self._file, self._buffer)
        self._wrote(len(self._buffer))
        self._buffer = bytearray()

    def finish(self, aborted: list[AbortedTransaction], modified_ms: int) -> None:
        """Write all its files; on return their content is durable."""
        self._write()
        assert self._file is not None
        self._disk.fsync(self._file)
        # Without timestamps the age of a segment is that of its file: keep it.
        self._disk.set_modified_ms(self._paths[LOG], modified_ms)
        contents = {
            OFFSET_INDEX: self.indexes.offset_entries(),
            TIME_INDEX: self.indexes.time_entries(),
        }
        if aborted:
            contents[TXN_INDEX] = b"".join(map(txn_index.pack_entry, aborted))
        for suffix, content in contents.items():
            file = self._disk.open_empty(self._paths[suffix])
            self._disk.write_at(file, 0, content)
            self._disk.fsync(file)

    def drop(self) -> None:
        """Remove its files."""
        self._file = None
        self._disk.unlink(self._paths[LOG])
