"""The newest offset of each key, within a bound of memory. Pure.

Keys are kept as they are, so that two keys are never taken for one. DIFFERS: Kafka keeps 24 bytes a
key, a hash of it among them, so the same setting holds more keys there; here fewer keys are looked
at in one pass, and the rest in the next ones.
"""

from typing import Final

from kafka_protocol.errors import InvalidRecordError, MalformedMessageError
from kafka_protocol.wire.primitives import continue_zigzag, read_zigzag

ENTRY_BYTES: Final = 180
"""Of one entry beside its key: two objects, its share of the table, and of one that grows."""


class OffsetMap:
    """Filled by one walk over the dirty part of a log, then asked for each record.

    Attributes:
        offsets: by key, the newest offset.
        latest_offset: the walk went as far as this (inclusive): of later records nothing is known.
        used_bytes: memory of the entries.
        bytes_max: bound of it.
    """

    __slots__ = ("bytes_max", "latest_offset", "offsets", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = -1
        self.used_bytes = 0
        self.bytes_max = bytes_max

    @property
    def utilization(self) -> float:
        """Share of the memory that is used."""
        return min(self.used_bytes / self.bytes_max, 1.0)

    def add_records(self, data: bytes, count: int, base_offset: int, start: int) -> bool:
        """Note the keys of one batch.

        Args:
            data: its records, inflated.
            count: how many, as the header says.
            base_offset: of the batch.
            start: offsets below it were cleaned before and do not count.

        Returns:
            False where there is no room for a further key: that record, and what follows, was not
            noted. A single key always has room.

        Raises:
            InvalidRecordError: the records contradict themselves.
        """
        try:
            return self._add(data, count, base_offset, start)
        except (IndexError, MalformedMessageError) as cause:
            raise InvalidRecordError(f"a record is cut or malformed: {cause}") from cause

    def _add(self, data: bytes, count: int, base_offset: int, start: int) -> bool:
        """One loop without calls for the usual one-byte varints."""
        offsets, used, used_max = self.offsets, self.used_bytes, self.bytes_max
        pos, size = 0, len(data)
        for _ in range(count):
            byte, second = data[pos], data[pos + 1]
            if byte > 127 and second < 128 and not byte & 1:  # two bytes, as of most records
                pos += 2
                stop = pos + ((byte + ((second - 1) << 7)) >> 1)
            else:
                length, pos = read_zigzag(data, pos)
                stop = pos + length
            if not pos + 6 <= stop <= size:
                raise InvalidRecordError(f"a record of {stop - pos} bytes, {size - pos} are left")
            pos += 1  # attributes
            while data[pos] > 127:  # the timestamp does not matter
                pos += 1
            byte = data[pos + 1]
            pos += 2
            if byte > 127:
                delta, pos = continue_zigzag(data, pos, byte, 5)
                offset = base_offset + delta
            else:
                offset = base_offset + ((byte >> 1) ^ -(byte & 1))
            byte = data[pos]
            pos += 1
            length = (byte >> 1) ^ -(byte & 1)
            if byte > 127:
                length, pos = continue_zigzag(data, pos, byte, 5)
            if pos + length > stop:
                raise InvalidRecordError("a key is longer than its record")
            if length >= 0 and offset >= start:
                key = data[pos : pos + length]
                if key not in offsets:
                    wanted = used + length + ENTRY_BYTES
                    if wanted > used_max and offsets:
                        self.used_bytes = used
                        return False
                    used = wanted
                offsets[key] = self.latest_offset = offset
            pos = stop
        self.used_bytes = used
        return True
