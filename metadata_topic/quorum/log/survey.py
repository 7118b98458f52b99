"""Reads the segment files of the metadata log, without changes.

For each file it finds the run of contiguous whole batches, the fault behind it, and whole batches
after the fault. `verdict` decides by these facts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from kafka_protocol.records.batch import HEADER_SIZE, BatchHeader, has_valid_crc, read_header
from local_log.file_names import LOG, parse_segment_file
from metadata_topic.quorum.log.batches import MAGIC, flushed_end_of
from runtime.disk import Disk, OpenFile

_WINDOW_BYTES: Final = 1 << 20
_MAGIC_POSITION: Final = 16
_OFFSET_BYTES: Final = 8
_LENGTH_END: Final = 12
"""End of the length field, which follows the offset."""
_SECTOR_BYTES: Final = 512
_LIKE_A_HEADER: Final = re.compile(rb"\x02.{4}\x00[\x00\x20].{20}\xff{10}", re.DOTALL)
"""Magic, any checksum, attributes of data or control, lengths and times, no producer."""


class LaterBatch(NamedTuple):
    """A whole batch with a valid checksum behind a fault.

    Attributes:
        flushed_end: Flushed end of the log (exclusive) noted in it; None if unknown.
    """

    position: int
    base_offset: int
    epoch: int
    flushed_end: int | None


@dataclass(frozen=True, slots=True)
class SegmentSurvey:
    """Content of one segment file.

    Attributes:
        name: Of the file.
        base_offset: From its name.
        size_bytes: Of the file.
        whole_bytes: Size of the run of whole, contiguous batches from its beginning.
        end_offset: End of the run (exclusive).
        last_epoch: Epoch of its last batch; -1 without batches.
        fault: Fault at `whole_bytes`; None if the file ends there.
        is_contradiction: The batch at the fault is whole, but does not continue the one before, and
            no torn sector explains it.
        later: Whole batches after the fault.
        epochs: (epoch, first offset) of each epoch in the run, by rising offset.
    """

    name: str
    base_offset: int
    size_bytes: int
    whole_bytes: int
    end_offset: int
    last_epoch: int
    fault: str | None = None
    is_contradiction: bool = False
    later: tuple[LaterBatch, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()


class _Window:
    """A file behind a buffer; positions are the file's."""

    def __init__(self, disk: Disk, file: OpenFile) -> None:
        self._disk = disk
        self._file = file
        self.size_bytes = file.size()
        self._data = b""
        self._start = 0

    def bytes_at(self, position: int, size: int) -> bytes | memoryview:
        """The bytes from `position`; fewer only at the end of the file."""
        at = position - self._start
        if at < 0 or at + size > len(self._data):
            self._data = self._disk.read_at(self._file, position, max(size, _WINDOW_BYTES))
            self._start, at = position, 0
        return memoryview(self._data)[at : at + size]


def survey_log(directory: Path, disk: Disk) -> list[SegmentSurvey]:
    """Survey all segments of the log, oldest first; empty if there is no directory.

    Raises:
        OSError: The disk failed.
    """
    try:
        names = disk.list_dir(directory)
    except FileNotFoundError:
        return []
    parsed = [(name, parse_segment_file(name)) for name in names]
    logs = sorted((p[0], name) for name, p in parsed if p is not None and p[1] == LOG)
    return [_survey(disk, directory / name, base) for base, name in logs]


def sound_batches(
    directory: Path, disk: Disk, segment: SegmentSurvey, from_offset: int
) -> Iterator[tuple[int, memoryview]]:
    """Read batches of a surveyed segment's run that begin at `from_offset` or later.

    Yields:
        The batch's position in the file, and its bytes.

    Raises:
        OSError: The disk failed.
    """
    file = disk.open_read(directory / segment.name)
    try:
        window, position = _Window(disk, file), 0
        while position < segment.whole_bytes:
            header = read_header(window.bytes_at(position, HEADER_SIZE))
            if header.base_offset >= from_offset:
                yield position, memoryview(window.bytes_at(position, header.size_bytes))
            position += header.size_bytes
    finally:
        file.close()


def _survey(disk: Disk, path: Path, base_offset: int) -> SegmentSurvey:
    file = disk.open_read(path)
    try:
        window = _Window(disk, file)
        position, end_offset, last_epoch = 0, base_offset, -1
        fault, is_contradiction = None, False
        epochs: list[tuple[int, int]] = []
        while position < window.size_bytes:
            header = _whole_batch(window, position)
            if header is None:
                fault = "no whole batch with a right checksum"
                break
            fault = _contradiction(header, end_offset, last_epoch)
            if fault is not None:
                is_contradiction = not _lacks_first_sector(header, end_offset, position)
                break
            position += header.size_bytes
            if header.partition_leader_epoch != last_epoch:
                epochs.append((header.partition_leader_epoch, header.base_offset))
            end_offset, last_epoch = header.next_offset, header.partition_leader_epoch
        later = () if fault is None else tuple(_whole_batches_after(window, position))
        return SegmentSurvey(
            path.name,
            base_offset,
            window.size_bytes,
            position,
            end_offset,
            last_epoch,
            fault,
            is_contradiction,
            later,
            tuple(epochs),
        )
    finally:
        file.close()


def _contradiction(header: BatchHeader, end_offset: int, last_epoch: int) -> str | None:
    """Reason why a whole batch cannot follow; the checksum covers neither offset nor epoch."""
    epoch = header.partition_leader_epoch
    if header.base_offset != end_offset or header.last_offset_delta < 0:
        return f"a batch at offset {header.base_offset} where {end_offset} is due"
    if 0 <= last_epoch != epoch and (epoch < last_epoch or not header.is_control):
        # A leader opens its epoch with a control batch.
        return f"a batch of epoch {epoch} after one of epoch {last_epoch}"
    return None


def _lacks_first_sector(header: BatchHeader, end_offset: int, position: int) -> bool:
    """True if only the first bytes of a batch are lost, in a sector of their own.

    The checksum does not cover the offset, and the first bytes of a length are zeros anyway. So
    such a batch looks whole after a power cut, except for its offset.
    """
    lost = _SECTOR_BYTES - position % _SECTOR_BYTES
    if lost >= _LENGTH_END:
        return False
    kept = (1 << 8 * max(0, _OFFSET_BYTES - lost)) - 1
    return header.base_offset == end_offset & kept


def _whole_batch(window: _Window, position: int) -> BatchHeader | None:
    """Header of the batch at `position`; None if no whole batch is there."""
    start = window.bytes_at(position, HEADER_SIZE)
    if len(start) < HEADER_SIZE:
        return None
    header = read_header(start)
    size = header.size_bytes
    if header.magic != MAGIC or size < HEADER_SIZE or position + size > window.size_bytes:
        return None
    return header if has_valid_crc(window.bytes_at(position, size), 0, header) else None


def _whole_batches_after(window: _Window, position: int) -> Iterator[LaterBatch]:
    """Find whole batches behind `position`, by header fields that all batches share."""
    at = position
    while at + HEADER_SIZE <= window.size_bytes:
        data = bytes(window.bytes_at(at, min(_WINDOW_BYTES, window.size_bytes - at)))
        done = 0  # no batch begins in this many bytes of `data`
        while found := _LIKE_A_HEADER.search(data, done + _MAGIC_POSITION):
            done = found.start() - _MAGIC_POSITION
            header = _whole_batch(window, at + done)
            if header is None:
                done += 1
                continue
            yield LaterBatch(
                at + done, header.base_offset, header.partition_leader_epoch, flushed_end_of(header)
            )
            done += header.size_bytes
        at += max(done, len(data) - HEADER_SIZE + 1)
