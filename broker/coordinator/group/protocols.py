"""Elects the protocol of a generation, and parses subscriptions. Pure.

Each member votes for the first of its protocols that all members support; most votes win. In Kafka
the order of a Java hash map breaks ties, and `_java_order` follows it: two brokers with the same
votes elect the same protocol.
"""

from collections import Counter
from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error

from broker.coordinator.group.member import Member

CONSUMER_PROTOCOL = "consumer"
"""Protocol type of consumers, whose metadata is a ConsumerProtocolSubscription."""

_COUNT = Struct(">hi")
_LENGTH = Struct(">h")


def java_hash(text: str) -> int:
    """Java's `String.hashCode` over UTF-16 units, as a signed 32-bit number."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        value = (31 * value + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def _java_order(names: Iterable[str]) -> list[str]:
    """Iteration order of a Java HashMap (buckets without trees)."""
    keys = list(names)
    capacity = 16
    while len(keys) * 4 > capacity * 3:
        capacity *= 2

    def bucket(name: str) -> int:
        value = java_hash(name) & 0xFFFFFFFF
        return (value ^ (value >> 16)) & (capacity - 1)

    return sorted(keys, key=bucket)


def select_protocol(members: Iterable[Member], candidates: set[str]) -> str | None:
    """Count the votes.

    Args:
        members: All members of the group.
        candidates: Protocols that every member supports.

    Returns:
        The winner; None if no member votes, which the check at the join rules out.
    """
    votes: Counter[str] = Counter()
    for member in members:
        for name, _ in member.protocols:
            if name in candidates:
                votes[name] += 1
                break
    if not votes:
        return None
    return max(_java_order(votes), key=votes.__getitem__)


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Topics in the subscriptions of consumers; None if one cannot be decoded.

    Only the common beginning of all versions of ConsumerProtocolSubscription is decoded: the
    version number and the topic names.
    """
    topics: set[str] = set()
    seen: set[bytes] = set()
    for each in metadata:
        if each in seen:
            continue
        seen.add(each)
        try:
            topics.update(_topics_of(each))
        except (struct_error, ValueError):
            return None
    return frozenset(topics)


def _topics_of(metadata: bytes) -> list[str]:
    version, count = _COUNT.unpack_from(metadata)
    if version < 0 or not 0 <= count <= len(metadata):
        raise ValueError("no ConsumerProtocolSubscription")
    position = _COUNT.size
    found = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(metadata, position)
        position += _LENGTH.size
        if length < 0 or position + length > len(metadata):
            raise ValueError("a topic's name is cut")
        found.append(metadata[position : position + length].decode(errors="replace"))
        position += length
    return found
