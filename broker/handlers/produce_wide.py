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
"""After so many topics or partitions, or so many bytes, the loop serves somebody else: 4 ms."""

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
    try:
        if version >= since.FLEXIBLE:
            return _is_flexible_wide(version, frame, offset)
        return _is_plain_wide(frame, offset)
    except (IndexError, error, MalformedMessageError):
        return False  # cut short: whoever decodes it says so


def _is_plain_wide(frame: memoryview, position: int) -> bool:
    position += 2 + max(0, _read_length(frame, position)[0]) + _ACKS_AND_TIMEOUT
    (topics,) = _read_count(frame, position)
    if topics > SLICE_PARTITIONS:
        return True
    position += 4
    count = size_bytes = 0
    for _ in range(topics):
        position += 2 + max(0, _read_length(frame, position)[0])
        (partitions,) = _read_count(frame, position)
        position += 4
        for _ in range(partitions):
            length = max(0, _read_count(frame, position + _INDEX)[0])
            position += _INDEX + 4 + length
            count, size_bytes = count + 1, size_bytes + length
            if count > SLICE_PARTITIONS or (size_bytes > SLICE_BYTES and count > 1):
                return True
    return False


def _is_flexible_wide(version: int, frame: memoryview, position: int) -> bool:
    length, position = read_uvarint(frame, position)
    position += max(0, length - 1) + _ACKS_AND_TIMEOUT
    topics, position = read_uvarint(frame, position)
    if topics - 1 > SLICE_PARTITIONS:
        return True
    count = size_bytes = 0
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
            count, size_bytes = count + 1, size_bytes + length
            if count > SLICE_PARTITIONS or (size_bytes > SLICE_BYTES and count > 1):
                return True
            position = skip_tags(frame, position + length)
        position = skip_tags(frame, position)
    return False


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
        if len(some) == SLICE_PARTITIONS:
            yield some
            some, count, size_bytes = [], 0, 0
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
