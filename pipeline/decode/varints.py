"""Zigzag varints at many positions of a buffer at once.

Nearly all varints of records have one or two bytes: two tables of 65,536 entries answer for these,
longer ones are computed where they occur. No position makes a read outside the buffer: behind its
end the last byte is read again, and the caller sees that its positions have left the record.
"""

import numpy as np
from numpy.typing import NDArray

from kafka_protocol.records.batch import Buffer
from pipeline.errors import DamagedDataError

Ints = NDArray[np.int64]

INT_BYTES = 5
LONG_BYTES = 10


class WrongRecordsError(DamagedDataError):
    """Some record among many is hostile; which, is to be found out."""


def _tables() -> tuple[Ints, Ints, Ints]:
    """For two bytes (little endian): value, size, and bytes to the next record.

    A size of 0 stands for a longer varint; a way of 0 also for a negative length.
    """
    both = np.arange(1 << 16, dtype=np.int64)
    low, high = both & 0xFF, both >> 8
    raw = np.where(low < 0x80, low, (low & 0x7F) | (high & 0x7F) << 7)
    value = (raw >> 1) ^ -(raw & 1)
    size = np.where(low < 0x80, 1, np.where(high < 0x80, 2, 0))
    way = np.where((size > 0) & (value >= 0), size + value, 0)
    return value, size, way


VALUE, SIZE, WAY = _tables()


class Varints:
    """A buffer whose varints are read at vectors of positions (int64, not negative)."""

    def __init__(self, data: Buffer) -> None:
        if len(data) < 2:
            data = bytes(data) + bytes(2)
        self.data = data
        self.bytes = np.frombuffer(data, np.uint8)
        # elements that begin at every byte: for short vectors one gather is faster than two
        self._pairs = np.ndarray((len(data) - 1,), np.dtype("<u2"), data, 0, (1,))

    def read(self, at: Ints, bytes_max: int = INT_BYTES) -> tuple[Ints, Ints]:
        """Values, and the positions behind them.

        Raises:
            WrongRecordsError: a varint continues past `bytes_max`.
        """
        value, behind, fine = self.try_read(at, bytes_max)
        if fine is not None and not fine.all():
            raise WrongRecordsError(f"a varint continues past {bytes_max} bytes")
        return value, behind

    def try_read(
        self, at: Ints, bytes_max: int = INT_BYTES
    ) -> tuple[Ints, Ints, NDArray[np.bool_] | None]:
        """Read as `read` does; also return which are not too long (None: all)."""
        low = self.bytes.take(at, mode="clip")
        if low.max(initial=0) < 0x80:
            return VALUE.take(low), at + 1, None
        pairs = self._both(low, at)
        value, size, fine = VALUE.take(pairs), SIZE.take(pairs), None
        if not size.all():
            long = np.flatnonzero(size == 0)
            fine = np.ones(len(at), np.bool_)
            value[long], size[long], fine[long] = self._read_long(at[long], bytes_max)
        size += at
        return value, size, fine

    def pairs(self, at: Ints) -> NDArray[np.uint16]:
        """Two bytes at each position."""
        return self._both(self.bytes.take(at, mode="clip"), at)

    def _both(self, low: NDArray[np.uint8], at: Ints) -> NDArray[np.uint16]:
        both = np.empty((len(at), 2), np.uint8)
        both[:, 0] = low
        both[:, 1] = self.bytes.take(at + 1, mode="clip")
        return both.view("<u2").reshape(-1)

    def ways(self, at: Ints) -> Ints:
        """From the length of each record to the next record.

        Raises:
            WrongRecordsError: a length is negative or no varint of an int.
        """
        try:
            way = WAY.take(self._pairs[at])
        except IndexError:
            raise WrongRecordsError("a record begins behind the last byte") from None
        if not way.all():
            long = np.flatnonzero(way == 0)
            value, size, fine = self._read_long(at[long], INT_BYTES)
            if not fine.all() or (value < 0).any():
                raise WrongRecordsError("a record whose length is no length")
            way[long] = value + size
        return way

    def _read_long(self, at: Ints, bytes_max: int) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Byte by byte, for the few; bits above the 64th make the value the largest there is."""
        raw = np.zeros(len(at), np.uint64)
        size = np.zeros(len(at), np.int64)
        going = np.ones(len(at), np.bool_)
        extreme = np.zeros(len(at), np.bool_)
        for index in range(bytes_max):
            byte = self.bytes.take(at + index, mode="clip").astype(np.uint64)
            bits = np.where(going, byte & np.uint64(0x7F), np.uint64(0))
            raw |= bits << np.uint64(7 * index)
            if index == LONG_BYTES - 1:
                extreme |= bits > 1
            size += going
            going &= byte > 0x7F
            if not going.any():
                break
        value = (raw >> np.uint64(1)).astype(np.int64) ^ -((raw & np.uint64(1)).astype(np.int64))
        value[extreme] = np.iinfo(np.int64).max
        return value, size, ~going
