"""Reads one partition of `__consumer_offsets` into a group state, on a thread.

The segments are read front to back as files, not by offsets. So an unreadable batch costs only its
own records, and reading continues behind it. All files are held open, so that they can be read to
their end even if compaction or retention replaces them.

The checksum of a batch does not cover its base offset. So the position in the file counts: an
intact batch with impossible offsets is replayed at its position, and logged.

Each damaged place is logged and counted; the partition is served without it.
"""

import logging
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.coordinator.group.decision import DamagedRecord
from broker.coordinator.group.state import GroupState
from kafka_protocol.errors import KafkaError, TidemarkError
from kafka_protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    BatchHeader,
    has_valid_crc,
    read_header,
)
from kafka_protocol.records.control import ControlType, control_type
from kafka_protocol.records.records import Record, iter_records
from local_log.log.partition_log import PartitionLog
from local_log.segment.segment import LogSegment
from runtime.disk import Disk, OpenFile
from runtime.executors import Pool
from runtime.incidents import Incident

log = logging.getLogger(__name__)

_NAMED_MAX: Final = 20
"""Damaged places that are logged one by one; then only their number is logged."""
_SEARCHED_BYTES: Final = 2 << 20
"""Bytes searched at a time for the next batch behind damage; usually it is within them."""
_MAGIC_BYTE: Final = bytes((MAGIC,))


class LoadAborted(TidemarkError):
    """The load is no longer wanted."""


class _Stretch(NamedTuple):
    """The part of a segment that is read: the bytes that were there when the load was created."""

    file: OpenFile
    size_bytes: int
    base_offset: int


@dataclass(slots=True)
class LoadReport:
    """Result of a load.

    Attributes:
        records: Replayed records.
        size_bytes: Size of the segments that were read.
        damaged: Unreadable records and batches.
    """

    records: int = 0
    size_bytes: int = 0
    damaged: int = 0


class Load:
    """Reads one partition's log as it was at construction; used once.

    Attributes:
        log: The log to read.
        report: Result so far.
    """

    def __init__(
        self, partition_log: PartitionLog, state: GroupState, *, disk: Disk, chunk_bytes: int
    ) -> None:
        """Read nothing yet; must be called on the event loop.

        Args:
            partition_log: The partition's log.
            state: Fresh state, which no other code may use until `run` has returned.
            disk: Reads the files.
            chunk_bytes: Bytes read by one call on the pool, except for larger batches.
        """
        self.report = LoadReport()
        self._name, self._state, self._disk = partition_log.topic_partition, state, disk
        self._chunk_bytes = max(chunk_bytes, HEADER_SIZE)
        self._start, self._end = partition_log.log_start_offset, partition_log.log_end_offset
        self.log = partition_log
        self._last = partition_log.segments.active
        self._last_bytes = self._last.size_bytes
        self._next = 0

    @property
    def is_empty(self) -> bool:
        """True if the log has no records."""
        return self._start >= self._end

    async def run(self, pool: Pool, is_wanted: Callable[[], bool]) -> None:
        """Read the whole log; `is_wanted` is called after each chunk.

        Raises:
            LoadAborted: The load is no longer wanted.
            OSError: The disk failed.
        """
        for stretch in [] if self.is_empty else await self._opened(pool):
            position, wanted = 0, self._chunk_bytes
            self._next = stretch.base_offset
            while position < stretch.size_bytes:
                position, wanted = await pool.run(self._read, stretch, position, wanted)
                if not is_wanted():
                    raise LoadAborted
            self.report.size_bytes += stretch.size_bytes
        if self.report.damaged > _NAMED_MAX:
            what = f"{self.report.damaged} records and batches in all"
            log.error(Incident.GROUP_DAMAGE.line(partition=self._name, outcome="found", what=what))

    async def _opened(self, pool: Pool) -> list[_Stretch]:
        """Open the files of all segments; open files stay readable when they are deleted."""
        while True:
            segments = list(self.log.segments.all)
            try:
                files = await pool.run(lambda: [one.file for one in segments])  # noqa: B023
            except FileNotFoundError:
                if self._is_same(segments):
                    raise
                continue
            if self._is_same(segments):
                return [
                    _Stretch(file, self._bytes_of(segment), segment.base_offset)
                    for file, segment in zip(files, segments, strict=True)
                    if segment.base_offset < self._end
                ]

    def _bytes_of(self, segment: LogSegment) -> int:
        """Size of a segment at construction: only the last one has grown since."""
        return self._last_bytes if segment is self._last else segment.size_bytes

    def _is_same(self, segments: Sequence[LogSegment]) -> bool:
        """True if these are still the first segments; False if files were replaced meanwhile."""
        now = self.log.segments.all[: len(segments)]
        return len(now) == len(segments) and all(map(operator.is_, now, segments))

    # -- on the pool

    def _read(self, stretch: _Stretch, position: int, wanted: int) -> tuple[int, int]:
        """Replay the batches from `position` on.

        Returns:
            Position to continue at, and number of bytes to read there.
        """
        left = stretch.size_bytes - position
        data = self._disk.read_at(stretch.file, position, min(wanted, left))
        done = self._take_all(data)
        if len(data) < min(wanted, left):
            return self._ends_early(stretch, position + len(data))
        if done:
            return position + done, self._chunk_bytes
        if len(data) < left and len(data) < (size := _claimed_size(data)) <= left:
            return position, size  # a batch larger than a chunk
        self._damaged(f"no batch can be read at byte {position} of {stretch.file.path}")
        if len(data) < min(_SEARCHED_BYTES, left):
            size = min(_SEARCHED_BYTES, left)
            data = self._disk.read_at(stretch.file, position, size)
        skipped = _next_batch(data, self._start, self._end)
        # If none is found, the last bytes may still be the beginning of one.
        skipped = max(len(data) - HEADER_SIZE, 1) if skipped is None else skipped
        return position + skipped, self._chunk_bytes

    def _ends_early(self, stretch: _Stretch, end: int) -> tuple[int, int]:
        """The file is shorter than the log's record of it: skip the missing part."""
        missing = stretch.size_bytes - end
        self._damaged(f"{stretch.file.path} ends at byte {end}: {missing} bytes are missing")
        return stretch.size_bytes, self._chunk_bytes

    def _take_all(self, data: bytes) -> int:
        """Replay whole batches from the beginning of `data`.

        Returns:
            Position of the first batch that is cut, or whose end is unknown.
        """
        position = 0
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            following = position + header.size_bytes
            if header.batch_length < HEADER_SIZE - LOG_OVERHEAD or following > len(data):
                break
            if header.magic == MAGIC and has_valid_crc(data, position, header):
                self._take(data, position, header)
            elif _may_begin(data, following):
                self._damaged(f"the batch of offset {header.base_offset} has a wrong checksum")
            else:
                break
            position = following
        return position

    def _take(self, data: bytes, position: int, header: BatchHeader) -> None:
        first = header.base_offset
        if not (self._next <= first and header.next_offset <= self._end):
            self._damaged(
                f"a batch claims to begin at offset {first}, which does not fit behind offset "
                f"{self._next} and before the log's end {self._end}; it counts where it lies",
                outcome="costs nothing",
            )
            # Inside the log, the earlier batch may have had the wrong offset instead.
            if first < self._start or header.next_offset > self._end:
                first = self._next
        self._next = first + header.last_offset_delta + 1
        if self._next <= self._start:
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        try:
            records = list(iter_records(data, position))
            if header.is_control:
                self._mark(records, header.producer_id)
            else:
                self._replay(records, first - header.base_offset, producer_id)
        except KafkaError as error:
            self._damaged(f"the batch of offset {header.base_offset}: {error}")

    def _replay(self, records: list[Record], moved: int, producer_id: int) -> None:
        wanted = (
            (record.offset + moved, record.key, record.value)
            for record in records
            if record.offset + moved >= self._start and record.key is not None
        )
        for damaged in self._state.replay_batch(wanted, producer_id=producer_id):
            self._damaged(damaged)
        self.report.records += len(records)

    def _mark(self, records: list[Record], producer_id: int) -> None:
        """Replay the end of a transaction; other control records have no effect here."""
        for record in records:
            kind = control_type(record)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                self._state.replay_marker(producer_id, committed=kind == ControlType.COMMIT)

    def _damaged(self, what: str | DamagedRecord, *, outcome: str = "is excluded") -> None:
        self.report.damaged += 1
        if self.report.damaged <= _NAMED_MAX:
            log.error(Incident.GROUP_DAMAGE.line(partition=self._name, outcome=outcome, what=what))


def _claimed_size(data: bytes) -> int:
    """Size in the header of the batch at the beginning of `data`; 0 without a header."""
    if len(data) < HEADER_SIZE or data[MAGIC_POSITION] != MAGIC:
        return 0
    return read_header(data).size_bytes


def _may_begin(data: bytes, position: int) -> bool:
    """True if a batch may begin at `position`; also if the bytes end before its magic byte."""
    return position + HEADER_SIZE > len(data) or data[position + MAGIC_POSITION] == MAGIC


def _next_batch(data: bytes, start: int, end: int) -> int | None:
    """Position of the next batch with offsets in [start, end), after the first byte.

    Returns:
        The first intact batch. Without one, the first candidate that is cut by the end of `data`;
        None without that.
    """
    cut = None
    found = data.find(_MAGIC_BYTE, MAGIC_POSITION + 1)
    while found >= 0:
        position = found - MAGIC_POSITION
        if position + HEADER_SIZE > len(data):
            break
        header = read_header(data, position)
        if start <= header.base_offset < end:
            if has_valid_crc(data, position, header):
                return position
            if cut is None and header.size_bytes > len(data) - position:
                cut = position
        found = data.find(_MAGIC_BYTE, found + 1)
    return cut
