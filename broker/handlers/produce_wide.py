"""Produce requests that are too large for one turn of the event loop, found by their outline."""

from collections.abc import Iterable, Iterator
from struct import Struct, error
from typing import Any, Final

from broker.handlers import produce_versions as since
from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.primitives import read_uvarint, skip_tags

LONG_FRAME_BYTES: Final = 32 * 1024
"""A shorter frame is never looked through: it has room for some hundred batches."""

SLICE_PARTITIONS: Final = 250
SLICE_BYTES: Final = 4 * 1024 * 1024
"""After so much the loop serves somebody else: 4 ms."""

_read_count = Struct(">i").unpack_from
_read_length = Struct(">h").unpack_from
_ACKS_AND_TIMEOUT: Final = 6
_UUID: Final = 16
_INDEX: Final = 4


def is_wide(version: int, frame: memoryview, offset: int) -> bool:
    """Whether the appends of a request are more than one slice; reads lengths only, and few.

    Args:
        version: 3 to 13.
        frame: header and body.
        offset: where the body begins.
    """
    if len(frame) <= LONG_FRAME_BYTES:
        return False
    walk = _flexible_lengths if version >= since.FLEXIBLE else _plain_lengths
    count = size_bytes = 0
    try:
        for length in walk(version, frame, offset):
            if count == SLICE_PARTITIONS or (count and size_bytes + length > SLICE_BYTES):
                return True
            count += 1
            size_bytes += length
    except (IndexError, error, MalformedMessageError):
        pass  # cut short: whoever decodes it says so
    return False


def _plain_lengths(version: int, frame: memoryview, position: int) -> Iterator[int]:
    """The length of each partition's records."""
    position += 2 + max(0, _read_length(frame, position)[0]) + _ACKS_AND_TIMEOUT
    (topics,) = _read_count(frame, position)
    position += 4
    for _ in range(topics):
        position += 2 + max(0, _read_length(frame, position)[0])
        (partitions,) = _read_count(frame, position)
        position += 4
        for _ in range(partitions):
            length = max(0, _read_count(frame, position + _INDEX)[0])
            yield length
            position += _INDEX + 4 + length


def _flexible_lengths(version: int, frame: memoryview, position: int) -> Iterator[int]:
    """The same."""
    length, position = read_uvarint(frame, position)
    position += max(0, length - 1) + _ACKS_AND_TIMEOUT
    topics, position = read_uvarint(frame, position)
    for _ in range(topics - 1):
        if version >= since.TOPIC_IDS:
            position += _UUID
        else:
            length, position = read_uvarint(frame, position)
            position += max(0, length - 1)
        partitions, position = read_uvarint(frame, position)
        for _ in range(partitions - 1):
            length, position = read_uvarint(frame, position + _INDEX)
            length = max(0, length - 1)
            yield length
            position = skip_tags(frame, position + length)
        position = skip_tags(frame, position)


def slices(topic_data: Iterable[Any]) -> Iterator[list[tuple[Any, list[Any]]]]:
    """Topics with their partitions, in the order of the request, so many for each turn.

    Args:
        topic_data: decoded structs (Any: made by the codec at run time).

    Yields:
        For one turn: topics, each with some or all of its partitions; those without are there, too.
    """
    some: list[tuple[Any, list[Any]]] = []
    count = size_bytes = 0
    for topic in topic_data:
        members: list[Any] = []
        some.append((topic, members))
        for data in topic.partition_data:
            length = 0 if data.records is None else len(data.records)
            if count == SLICE_PARTITIONS or (count and size_bytes + length > SLICE_BYTES):
                yield some
                members = []
                some = [(topic, members)]
                count = size_bytes = 0
            members.append(data)
            count += 1
            size_bytes += length
    if some:
        yield some
