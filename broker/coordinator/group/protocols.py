"""Which protocol a generation goes by, and which topics its members subscribed to. Pure.

Each member votes for the first of its protocols that all members support; most votes win. Kafka
leaves ties to the order of a Java hash map, which `_java_order` follows: two brokers that hold the
same votes name the same winner.
"""

from collections import Counter
from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error

from broker.coordinator.group.member import Member

CONSUMER_PROTOCOL = "consumer"
"""Protocol type of consumers: its metadata is a ConsumerProtocolSubscription."""

_COUNT = Struct(">hi")
_LENGTH = Struct(">h")


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: 31-based over UTF-16 units, wrapped to a signed 32-bit number."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        value = (31 * value + (encoded[position] << 8 | encoded[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def _java_order(names: Iterable[str]) -> list[str]:
    """The order in which a Java HashMap walks its keys (buckets without trees)."""
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
        members: all of the group.
        candidates: protocols that every member supports.

    Returns:
        The winner; None where no member votes, which the check at the join rules out.
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
    """Topics in the subscriptions of consumers; None where one of them cannot be read.

    Only the part that all versions of ConsumerProtocolSubscription begin with is read: a version
    number, and the topics' names.
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
