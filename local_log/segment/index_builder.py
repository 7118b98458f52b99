"""Builds both indexes of a segment in memory, entry by entry as an append does. Pure."""

from kafka_protocol.files import offset_index, time_index
from kafka_protocol.records.batch import BatchHeader


class IndexBuilder:
    """Builds the indexes from the headers of a segment's batches, added in their order.

    Attributes:
        base_offset: Of the segment.
        interval_bytes: An entry is added once more bytes than this lie behind the last one.
        size_bytes: Size of the batches so far, which is the position of the next one.
        max_timestamp: Largest batch timestamp so far (ms), -1 if there is none.
        offset_of_max_timestamp: Last offset of the first batch with that timestamp.
        first_timestamp: Largest timestamp of the first batch (ms); None before it.
        bytes_since_entry: Size of the batches from the newest entry on.
    """

    __slots__ = (
        "_entries_left",
        "_last_stamp",
        "_offsets",
        "_times",
        "_times_left",
        "base_offset",
        "bytes_since_entry",
        "first_timestamp",
        "interval_bytes",
        "max_timestamp",
        "offset_of_max_timestamp",
        "size_bytes",
    )

    def __init__(self, base_offset: int, *, interval_bytes: int, index_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self._entries_left = index_bytes // offset_index.ENTRY_SIZE
        self._times_left = index_bytes // time_index.ENTRY_SIZE - 1  # one is for the close
        self._last_stamp = -1
        self._offsets = bytearray()
        self._times = bytearray()
        self.size_bytes = 0
        self.max_timestamp = -1
        self.offset_of_max_timestamp = base_offset
        self.first_timestamp: int | None = None
        self.bytes_since_entry = 0

    def add(self, header: BatchHeader) -> None:
        """Add the next batch.

        It gets an entry (its last offset, its position) if more than `interval_bytes` lie between
        the last entry's batch and this one.
        """
        last, size = header.last_offset, header.size_bytes
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.offset_of_max_timestamp = last
        if self.first_timestamp is None:
            self.first_timestamp = header.max_timestamp
        if self.bytes_since_entry > self.interval_bytes:
            self.add_entries(last)
        self.size_bytes += size
        self.bytes_since_entry += size

    def add_entries(self, last_offset: int) -> None:
        """Add the entries of the batch at position `size_bytes`, while the indexes have space.

        The caller has already updated the maximum timestamp.

        Args:
            last_offset: Last offset of the batch (inclusive).
        """
        if self._entries_left > 0:
            relative = last_offset - self.base_offset
            self._offsets += offset_index.pack_entry(relative, self.size_bytes)
            self._entries_left -= 1
        if self._times_left > 0:
            self._add_time()
        self.bytes_since_entry = 0

    def _add_time(self) -> None:
        if self.max_timestamp > self._last_stamp:
            relative = self.offset_of_max_timestamp - self.base_offset
            self._times += time_index.pack_entry(self.max_timestamp, relative)
            self._last_stamp = self.max_timestamp
            self._times_left -= 1

    def offset_entries(self) -> bytes:
        """Return the bytes of the offset index."""
        return bytes(self._offsets)

    def time_entries(self) -> bytes:
        """Return the bytes of the time index, with the last entry of a closed segment."""
        self._add_time()
        return bytes(self._times)
