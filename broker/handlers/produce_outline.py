"""The outline of a wide Produce: its topics, and how many partitions, without its records.

A request of which nothing can be appended is answered from it: 100,000 partitions of a topic that
does not exist cost no object each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Any, Final

from broker.handlers import produce_versions as since
from kafka_protocol.errors import ErrorCode, MalformedMessageError
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.element_caps import CAPS
from kafka_protocol.wire.primitives import encode_uvarint, read_uvarint, skip_tags

ELEMENTS_MAX: Final = CAPS[ApiKey.PRODUCE].elements

_read_count = Struct(">i").unpack_from
_read_length = Struct(">h").unpack_from
_INDEX_BYTES: Final = 4
_UUID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class OutlinedTopic:
    """A topic of a request.

    Attributes:
        key: name, or from version 13 the 16 bytes of its id.
        partitions: how many.
        position: in the body, of the first one.
    """

    key: Any
    partitions: int
    position: int


class Outline:
    """What is in a request, once `count` has looked.

    Attributes:
        acks: as asked for; known at once.
        topics: None where the request is cut short, or has more elements than it may have: whoever
            decodes it says so.
    """

    def __init__(self, version: int, body: memoryview) -> None:
        self.body, self._version = body, version
        self._flexible = version >= since.FLEXIBLE
        self.topics: Sequence[OutlinedTopic] | None = None
        self._after_acks, self.acks = -1, 1
        try:
            position = self._skip_text(0)
            (self.acks,) = _read_length(body, position)
            self._after_acks = position + 6
        except (IndexError, error, MalformedMessageError):
            pass

    def count(self) -> int:
        """How many topics and partitions there are, as far as the request is whole."""
        count = 0
        topics: list[OutlinedTopic] = []
        if self._after_acks < 0:
            return 0
        try:
            topics_count, position = self._length(self._after_acks)
            for _ in range(topics_count):
                key, position = self._key(position)
                partitions, position = self._length(position)
                topics.append(OutlinedTopic(key, partitions, position))
                count += 1
                for end in self._ends(position, partitions):
                    count += 1
                    position = end
                    if count > ELEMENTS_MAX:
                        return count
                if self._flexible:
                    position = skip_tags(self.body, position)
                if partitions < 0 or position > len(self.body) or count > ELEMENTS_MAX:
                    return count
            if self._flexible:
                skip_tags(self.body, position)
            self.topics = topics
        except (IndexError, error, MalformedMessageError, UnicodeDecodeError):
            pass
        return count

    def refusal(self, codes: Sequence[ErrorCode]) -> list[object]:
        """The body of an answer that says of each topic's partitions why none was appended."""
        assert self.topics is not None
        version, flexible, body = self._version, self._flexible, self.body
        out = bytearray(self._counted(len(self.topics)))
        for topic, code in zip(self.topics, codes, strict=True):
            if version >= since.TOPIC_IDS:
                out += topic.key
            else:
                name = topic.key.encode()
                out += encode_uvarint(len(name) + 1) if flexible else _pack_length(len(name))
                out += name
            out += self._counted(topic.partitions)
            rest, position = _rest(version, code), topic.position
            for end in self._ends(position, topic.partitions):
                out += body[position : position + _INDEX_BYTES]
                out += rest
                position = end
            if flexible:
                out += b"\0"
        out += b"\0\0\0\0\0" if flexible else b"\0\0\0\0"
        return [out]

    # -- the walk

    def _ends(self, position: int, partitions: int) -> Iterator[int]:
        """Where each of the partitions from `position` on ends."""
        body = self.body
        if self._flexible:
            for _ in range(partitions):
                length, position = read_uvarint(body, position + _INDEX_BYTES)
                position = skip_tags(body, position + max(0, length - 1))
                yield position
        else:
            for _ in range(partitions):
                (length,) = _read_count(body, position + _INDEX_BYTES)
                position += _INDEX_BYTES + 4 + (max(0, length))
                yield position

    def _key(self, position: int) -> tuple[Any, int]:
        if self._version >= since.TOPIC_IDS:
            end = position + _UUID_BYTES
            return bytes(self.body[position:end]), end
        end = self._skip_text(position)
        start = read_uvarint(self.body, position)[1] if self._flexible else position + 2
        return str(self.body[start:end], "utf-8"), end

    def _skip_text(self, position: int) -> int:
        if self._flexible:
            length, position = read_uvarint(self.body, position)
            return position + max(0, length - 1)
        size: int = _read_length(self.body, position)[0]
        return position + 2 + max(0, size)

    def _length(self, position: int) -> tuple[int, int]:
        if self._flexible:
            length, position = read_uvarint(self.body, position)
            return length - 1, position
        count: int = _read_count(self.body, position)[0]
        return count, position + 4

    def _counted(self, count: int) -> bytes:
        return encode_uvarint(count + 1) if self._flexible else _pack_count(count)


_pack_length = Struct(">h").pack
_pack_count = Struct(">i").pack


def _rest(version: int, code: ErrorCode) -> bytes:
    """What follows the index of a partition with an error; see `produce_codec`."""
    if version >= since.FLEXIBLE:
        return Struct(">hqqqBBB").pack(code, -1, -1, -1, 1, 0, 0)
    if version >= since.RECORD_ERRORS:
        return Struct(">hqqqih").pack(code, -1, -1, -1, 0, -1)
    if version >= since.LOG_START:
        return Struct(">hqqq").pack(code, -1, -1, -1)
    return Struct(">hqq").pack(code, -1, -1)
