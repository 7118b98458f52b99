"""The outline of a Produce request: whether it is wide, its topics, and positions of partitions.

A wide request is too large for one iteration of the event loop. If none of its batches can be
appended, it is answered from its outline. So 100,000 partitions of a missing topic need no object
each.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from struct import Struct, error
from typing import Any, Final

from broker.handlers import produce_versions as since
from kafka_protocol.errors import ErrorCode, MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request
from kafka_protocol.wire.primitives import encode_uvarint, read_uvarint, skip_tags

ELEMENTS_MAX: Final = request(ApiKey.PRODUCE).all_elements_max

_read_count = Struct(">i").unpack_from
_read_length = Struct(">h").unpack_from
_INDEX_BYTES: Final = 4
_UUID_BYTES: Final = 16
_TOPIC_BYTES_MIN: Final = 3
"""Size of a topic without partitions, from version 9 on: the smallest element of any array."""

LONG_FRAME_BYTES: Final = 32 * 1024
"""A shorter frame is never wide: it has room for some hundred batches."""
SLICE_PARTITIONS: Final = 250
SLICE_BYTES: Final = 4 * 1024 * 1024
"""Topics and partitions, or bytes, appended in one slice: 4 ms."""
_ACKS_AND_TIMEOUT: Final = 6

OutlinedTopic = tuple[Any, int, int, int]
"""One topic of an outline; a plain tuple, because there may be 249,000.

Name, or from version 13 the 16 bytes of the id; its position in the body; position of its first
partition; number of partitions.
"""


def is_wide(version: int, frame: memoryview, offset: int) -> bool:
    """True if the appends of a request take more than one slice; reads a bounded number of lengths.

    Args:
        version: 3 to 13.
        frame: Header and body.
        offset: Where the body begins.
    """
    if len(frame) <= LONG_FRAME_BYTES:
        return False
    try:
        if version >= since.FLEXIBLE:
            return _is_flexible_wide(version, frame, offset)
        return _is_plain_wide(frame, offset)
    except (IndexError, error, MalformedMessageError):
        return False  # cut short: the decoder reports it


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
            length = max(0, _read_count(frame, position + _INDEX_BYTES)[0])
            position += _INDEX_BYTES + 4 + length
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
            position += _UUID_BYTES
        else:
            length, position = read_uvarint(frame, position)
            position += max(0, length - 1)
        partitions, position = read_uvarint(frame, position)
        for _ in range(partitions - 1):
            length, position = read_uvarint(frame, position + _INDEX_BYTES)
            length = max(0, length - 1)
            count, size_bytes = count + 1, size_bytes + length
            if count > SLICE_PARTITIONS or (size_bytes > SLICE_BYTES and count > 1):
                return True
            position = skip_tags(frame, position + length)
        position = skip_tags(frame, position)
    return False


class Outline:
    """Topics and partitions of a request; `count` must be called first, on a thread.

    Attributes:
        acks: `acks` of the request; known before `count`.
        elements_max: Limit on topics and partitions for a request of this length; known before
            `count`.
        topics: None if the request is cut short or has too many elements: the decoder reports it.
    """

    def __init__(self, version: int, body: memoryview) -> None:
        self.body, self._version = body, version
        self._flexible = version >= since.FLEXIBLE
        self.elements_max = min(ELEMENTS_MAX, len(body) // _TOPIC_BYTES_MIN)
        self.topics: Sequence[OutlinedTopic] | None = None
        self._positions: list[int] = []  # of all partitions, in the order of the request
        self._after_acks, self.acks = -1, 1
        try:
            position = self._after_transactional_id()
            (self.acks,) = _read_length(body, position)
            self._after_acks = position + 6
        except (IndexError, error, MalformedMessageError):
            pass

    def count(self) -> int:
        """Count topics and partitions; `elements_max` if `topics` is None."""
        walk = self._walk_flexible if self._flexible else self._walk_plain
        if self._after_acks >= 0:
            with suppress(IndexError, error, MalformedMessageError, UnicodeDecodeError):
                self.topics = walk(self._after_acks)
        if self.topics is None:
            self._positions.clear()
            return self.elements_max
        return len(self.topics) + len(self._positions)

    def refusal(self, codes: Sequence[ErrorCode]) -> list[object]:
        """Encode an answer with the same error for all partitions of a topic."""
        assert self.topics is not None
        flexible, body = self._flexible, self.body
        out = bytearray(self._counted(len(self.topics)))
        positions, rest, rest_is_of = iter(self._positions), b"", None
        for (_, begin, end, partitions), code in zip(self.topics, codes, strict=True):
            out += body[begin:end]  # name and number of partitions are encoded as in the request
            if code is not rest_is_of:
                rest, rest_is_of = _rest(self._version, code), code
            for position in islice(positions, partitions):
                out += body[position : position + _INDEX_BYTES]
                out += rest
            if flexible:
                out += b"\0"
        out += b"\0\0\0\0\0" if flexible else b"\0\0\0\0"
        return [out]

    # -- the walk, written out by version: 100,000 topics take a tenth of a second

    def _walk_plain(self, position: int) -> list[OutlinedTopic] | None:
        body, positions = self.body, self._positions
        topics: list[OutlinedTopic] = []
        (count,) = _read_count(body, position)
        position += 4
        left = ELEMENTS_MAX - count
        for _ in range(count):
            begin = position
            (length,) = _read_length(body, position)
            position += 2 + length
            (partitions,) = _read_count(body, position)
            left -= partitions
            if length < 0 or partitions < 0 or left < 0:
                return None
            key = str(body[begin + 2 : position], "utf-8")
            position += 4
            topics.append((key, begin, position, partitions))
            for _ in range(partitions):
                positions.append(position)
                (length,) = _read_count(body, position + _INDEX_BYTES)
                position += _INDEX_BYTES + 4
                if length > 0:
                    position += length
        return topics if 0 <= count <= ELEMENTS_MAX and position <= len(body) else None

    def _walk_flexible(self, position: int) -> list[OutlinedTopic] | None:
        body, positions, with_ids = self.body, self._positions, self._version >= since.TOPIC_IDS
        topics: list[OutlinedTopic] = []
        count, position = read_uvarint(body, position)
        left = ELEMENTS_MAX + 1 - count
        for _ in range(count - 1):
            begin = position
            key: Any
            if with_ids:
                position += _UUID_BYTES
                key = bytes(body[begin:position])
            else:
                length, start = read_uvarint(body, position)
                if not length:
                    return None
                position = start + length - 1
                key = str(body[start:position], "utf-8")
            partitions, position = read_uvarint(body, position)
            left -= partitions - 1
            if not partitions or left < 0:
                return None
            topics.append((key, begin, position, partitions - 1))
            for _ in range(partitions - 1):
                positions.append(position)
                length = body[position + _INDEX_BYTES]
                if length < 0x80:
                    position += _INDEX_BYTES + 1
                else:
                    length, position = read_uvarint(body, position + _INDEX_BYTES)
                if length:
                    position += length - 1
                position = skip_tags(body, position) if body[position] else position + 1
            position = skip_tags(body, position) if body[position] else position + 1
        skip_tags(body, position)
        return topics if 1 <= count <= ELEMENTS_MAX + 1 else None

    def _after_transactional_id(self) -> int:
        if self._flexible:
            length, position = read_uvarint(self.body, 0)
            return position + max(0, length - 1)
        size: int = _read_length(self.body, 0)[0]
        return 2 + max(0, size)

    def _counted(self, count: int) -> bytes:
        return encode_uvarint(count + 1) if self._flexible else _pack_count(count)


_pack_count = Struct(">i").pack
_pack_9 = Struct(">hqqqBBB").pack
_pack_8 = Struct(">hqqqih").pack
_pack_5 = Struct(">hqqq").pack
_pack_3 = Struct(">hqq").pack


def _rest(version: int, code: ErrorCode) -> bytes:
    """The fields after the index of a partition with an error, as in `produce_codec`."""
    if version >= since.FLEXIBLE:
        return _pack_9(code, -1, -1, -1, 1, 0, 0)
    if version >= since.RECORD_ERRORS:
        return _pack_8(code, -1, -1, -1, 0, -1)
    if version >= since.LOG_START:
        return _pack_5(code, -1, -1, -1)
    return _pack_3(code, -1, -1)
