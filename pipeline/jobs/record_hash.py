"""Count and hash of records, to compare two readers whatever the order and pieces they read in."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

_MODULUS: Final = 1 << 128
_HEAD: Final = struct.Struct(">qqbqqq")
_LENGTH: Final = struct.Struct(">q")
_HASHED: Final = (
    "partition", "offset", "timestamp", "timestampType", "key", "value", "headers",
)  # fmt: skip

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True)
class Digest:
    """Records of one partition.

    Attributes:
        count: how many.
        total: their hashes, added up modulo 2**128: equal sets of records have equal sums.
    """

    count: int = 0
    total: int = 0

    def add(self, record_hash: int) -> None:
        """Add one record."""
        self.count += 1
        self.total = (self.total + record_hash) % _MODULUS

    def join(self, other: "Digest") -> None:
        """Add another digest's records."""
        self.count += other.count
        self.total = (self.total + other.total) % _MODULUS


def hash_record(
    place: tuple[int, int, int], key: bytes | None, value: bytes | None, headers: Headers | None
) -> int:
    """The hash of all that a consumer sees of a record.

    Lengths are hashed with the bytes, null as -1, so no two records look alike.

    Args:
        place: offset, timestamp (ms), type of the timestamp (0 or 1).
        key: None is null.
        value: None is null.
        headers: in their order; None and empty are the same.
    """
    offset, at_ms, kind = place
    count = len(headers) if headers else 0
    hashed = blake2b(
        _HEAD.pack(offset, at_ms, kind, _size(key), _size(value), count), digest_size=16
    )
    hashed.update(key or b"")
    hashed.update(value or b"")
    for name, data in headers or ():
        encoded = name.encode()
        hashed.update(_LENGTH.pack(len(encoded)) + encoded + _LENGTH.pack(_size(data)))
        hashed.update(data or b"")
    return int.from_bytes(hashed.digest(), "big")


def digests_of_batches(batches: Iterable[Any]) -> dict[int, Digest]:
    """Digests by partition of Arrow batches with all columns of the source."""
    found: dict[int, Digest] = {}
    for batch in batches:
        at = batch.schema.get_field_index("timestamp")
        numbers = batch.set_column(at, "timestamp", batch.column(at).cast("int64"))
        # as numbers: Python's datetime ends with the year 9999
        rows = zip(*(numbers.column(name).to_pylist() for name in _HASHED), strict=True)
        for partition, offset, at_us, kind, key, value, headers in rows:
            named = [(one["key"], one["value"]) for one in headers] if headers else None
            record = hash_record((offset, at_us // 1000, kind), key, value, named)
            found.setdefault(partition, Digest()).add(record)
    return found


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
