"""The headers of all batches of a group at once: walked, checked, and which of them hold rows.

Every header and every checksum is validated, also of batches whose rows are not asked for. Must not
know: records, Arrow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from kafka_protocol.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
    Buffer,
)
from kafka_protocol.types import EpochEntry
from pipeline.decode.asked import AbortedLookup
from pipeline.errors import DamagedDataError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
_read_length = Struct(">i").unpack_from


class DamagedBatchError(DamagedDataError):
    """A batch is not as it must be; `decode_group` adds the object, and raises the plain error."""

    def __init__(self, position: int, base_offset: int | None, reason: str) -> None:
        super().__init__(position, base_offset, reason)
        self.position, self.base_offset, self.reason = position, base_offset, reason


@dataclass(frozen=True, slots=True)
class Frames:
    """Batches, one row each, ascending by offset.

    Attributes:
        position: of the first byte.
        end: position behind the last byte.
        last_offset: as the header names it (inclusive); `last_offset_delta` beside it.
        append_time: whether `max_timestamp` holds for every record.
    """

    position: Ints
    end: Ints
    base_offset: Ints
    last_offset: Ints
    base_timestamp: Ints
    max_timestamp: Ints
    producer_id: Ints
    record_count: Ints
    codec: Ints
    append_time: Bools
    transactional: Bools
    control: Bools

    def __len__(self) -> int:
        return len(self.position)

    def of(self, which: Any) -> "Frames":
        """Some of the batches: a slice, a mask or indices."""
        return Frames(*(getattr(self, name)[which] for name in self.__slots__))


def read_frames(data: Buffer, epochs: Sequence[EpochEntry]) -> Frames:
    """Walk and check the headers and checksums of all batches in `data`.

    Args:
        data: whole batches and nothing else.
        epochs: the chain that the batches must be of; empty: any. Nothing is known of batches that
            begin below its first entry: it was made when the log began there.

    Raises:
        DamagedBatchError: about the first batch with something wrong.
    """
    positions, sums = _walk(data)
    if not positions:
        return _frames(np.empty(0, np.int64), np.empty(0, _HEADER))
    where = np.array(positions, np.int64)
    # elements that begin at every byte: one gather reads all headers
    every = np.ndarray((len(data) - HEADER_SIZE + 1,), _HEADER, data, 0, (1,))
    heads = every[where]
    found = _frames(where, heads)
    previous = np.concatenate(([-1], found.last_offset[:-1]))
    wanted = _epochs_at(epochs, found.base_offset)
    epoch = heads["leader_epoch"].astype(np.int64)
    checks: list[tuple[Any, Callable[[int], str]]] = [
        (heads["magic"] != MAGIC, lambda i: f"its magic is {heads['magic'][i]}, not {MAGIC}"),
        (
            heads["crc"] != np.array(sums, np.uint32),
            lambda i: f"its CRC-32C is {sums[i]:#010x}, the header says {heads['crc'][i]:#010x}",
        ),
        (
            (found.base_offset < 0) | (found.last_offset < found.base_offset),
            lambda i: f"its offsets are {found.base_offset[i]} to {found.last_offset[i]}",
        ),
        (found.record_count < 0, lambda i: f"it claims {found.record_count[i]} records"),
        (
            found.base_offset <= previous,
            lambda i: f"it follows a batch that ends at offset {previous[i]}",
        ),
    ]
    if wanted is not None:
        expected = wanted
        checks.append(
            (
                (epoch != expected) & (expected >= 0),
                lambda i: f"it is of leader epoch {epoch[i]}, the log's is {expected[i]} there",
            )
        )
    _raise_first(found, checks)
    return found


def _walk(data: Buffer) -> tuple[list[int], list[int]]:
    """Positions and checksums of all batches: the one loop with a step for each batch."""
    view = memoryview(data)
    end = len(view)
    positions, sums = [], []
    position = 0
    while position < end:
        if position + HEADER_SIZE > end:
            raise DamagedBatchError(position, None, f"{end - position} bytes are no batch")
        length = _read_length(view, position + 8)[0]
        following = position + length + LOG_OVERHEAD
        if length < HEADER_SIZE - LOG_OVERHEAD or following > end:
            raise DamagedBatchError(
                position,
                int.from_bytes(view[position : position + 8], "big", signed=True),
                f"its length is {length} bytes, {end - position - LOG_OVERHEAD} are there",
            )
        positions.append(position)
        sums.append(crc32c(view[position + CRC_START : following]))
        position = following
    return positions, sums


def _frames(position: Ints, heads: Any) -> Frames:
    def field(name: str) -> Ints:
        return np.asarray(heads[name], np.int64)

    attributes, base_offset = field("attributes"), field("base_offset")
    return Frames(
        position=position,
        end=position + field("batch_length") + LOG_OVERHEAD,
        base_offset=base_offset,
        last_offset=base_offset + field("last_offset_delta"),
        base_timestamp=field("base_timestamp"),
        max_timestamp=field("max_timestamp"),
        producer_id=field("producer_id"),
        record_count=field("record_count"),
        codec=attributes & CODEC_MASK,
        append_time=(attributes & LOG_APPEND_TIME_FLAG) != 0,
        transactional=(attributes & TRANSACTIONAL_FLAG) != 0,
        control=(attributes & CONTROL_FLAG) != 0,
    )


def _epochs_at(epochs: Sequence[EpochEntry], offsets: Ints) -> Ints | None:
    """The chain's epoch at each offset; -1 below its first entry, of which it says nothing."""
    if not epochs:
        return None
    starts = np.array([entry.start_offset for entry in epochs], np.int64)
    numbers = np.array([-1, *(entry.epoch for entry in epochs)], np.int64)
    return numbers[np.searchsorted(starts, offsets, side="right")]


def _raise_first(frames: Frames, checks: list[tuple[Any, Callable[[int], str]]]) -> None:
    first = {int(np.argmax(wrong)): reason for wrong, reason in reversed(checks) if wrong.any()}
    if first:
        index = min(first)
        raise DamagedBatchError(
            int(frames.position[index]), int(frames.base_offset[index]), first[index](index)
        )


def rows_wanted(frames: Frames, first: int, last: int, aborted: AbortedLookup) -> Bools:
    """Which batches may hold rows in `[first, last]`: no markers, nothing of aborted transactions.

    Args:
        frames: ascending.
        first: smallest offset wanted (inclusive).
        last: largest offset wanted (inclusive).
        aborted: what is excluded.
    """
    wanted = ~frames.control & (frames.last_offset >= first) & (frames.base_offset <= last)
    if len(aborted):
        asked = np.flatnonzero(wanted & frames.transactional)
        of = frames.of(asked)
        wanted[asked] = ~aborted.touches(of.producer_id, of.base_offset, of.last_offset)
    return wanted
