"""Which partition of `__consumer_offsets` has a group: Java's hash of its id."""

from struct import Struct, iter_unpack

_CODE_UNIT = Struct("<H")
_BITS_31 = 0x7FFFFFFF
_SIGN = 0x80000000


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, from -2**31 to 2**31 - 1: over code units of UTF-16."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = value * 31 + unit & 0xFFFFFFFF
    else:
        for (unit,) in iter_unpack(_CODE_UNIT.format, text.encode("utf-16-le", "surrogatepass")):
            value = value * 31 + unit & 0xFFFFFFFF
    return value - (1 << 32) if value & _SIGN else value


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition that has `group_id`, as every Kafka broker and tool computes it."""
    value = java_hash(group_id)
    # The smallest number has no positive twin in Java: Kafka takes 0 for it.
    return (abs(value) & _BITS_31) % partition_count
