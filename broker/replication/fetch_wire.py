"""Fetch 13 to 18 for a follower, in slices: neither side is decoded or copied as a whole.

A request is packed a partition at a time, for all versions: the version is known when it is sent.
An answer is walked through in its frame; its records stay views of it. Fields for consumers only
are left out, or skipped.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from struct import Struct, error
from typing import Final, NamedTuple, TypeVar

from broker.replication.fetch_session import PartitionId, Question
from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.wire.primitives import encode_uvarint, read_uvarint, skip_tags
from kafka_protocol.wire.schema import Versions
from local_log.leader_epoch_cache import EpochEnd
from runtime.work import Pace, Steps

VERSIONS: Final = Versions(13, 18)
"""From the version with topic ids on: each broker of a cluster with KRaft serves them."""
_REPLICA_STATE: Final = 15
_HIGH_WATERMARK: Final = 18
_NO_TAGS: Final = b"\0"
_ID_BYTES: Final = 16
_ABORTED_BYTES_MIN: Final = 17
_PARTITION_BYTES_MIN: Final = 37
_TOPIC_BYTES_MIN: Final = 18
_DIVERGING: Final = 0
_UNITS: Final = 5
"""Microseconds, about, for a partition of a request or an answer."""

_pack_id = Struct(">i").pack
_pack_limits = Struct(">iiibii").pack
_pack_asked = Struct(">iiqiqi").pack
_pack_high_watermark = Struct(">BBBqB").pack
_pack_replica = Struct(">BBBiqB").pack
_unpack_top = Struct(">ihi").unpack_from
_unpack_partition = Struct(">ihqqq").unpack_from
_unpack_diverging = Struct(">iq").unpack_from
_TOP_BYTES: Final = 10
_PARTITION_BYTES: Final = 30

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTerms:
    """The settings of all Fetch requests of a follower.

    Attributes:
        node_id: Of the follower.
        wait_ms, min_bytes: The leader waits at most this long for this many bytes.
        max_bytes: Of the whole answer.
        partition_bytes: Of one partition.
    """

    node_id: int
    wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10 << 20
    partition_bytes: int = 1 << 20


# -- requests -----------------------------------------------------------------------------------


def encoded(
    question: Question, terms: FetchTerms, *, broker_epoch: int, wait_ms: int
) -> Steps[Callable[[int], bytes]]:
    """Pack a request.

    Args:
        question: Of the session.
        terms: From the settings.
        broker_epoch: Of this incarnation of the follower.
        wait_ms: Of this request; at most that of the terms.

    Returns:
        A function that makes the body for a version.
    """
    pace = Pace()
    heads: list[bytes] = []  # of each partition; a topic's first one also has the topic's
    tags: list[bytes] = []
    lead = b""
    by_topic = _by_topic(question.asked)
    for topic_id, partitions in by_topic.items():
        lead += topic_id + encode_uvarint(len(partitions) + 1)
        for index, asked in partitions:
            fixed = _pack_asked(
                index,
                asked.leader_epoch,
                asked.offset,
                asked.last_fetched_epoch,
                asked.log_start_offset,
                terms.partition_bytes,
            )
            heads.append(lead + fixed)
            tags.append(_pack_high_watermark(1, 1, 8, asked.high_watermark, 0)[:-1])
            lead = b""
            if pace.is_step_over(_UNITS):
                yield
        lead = _NO_TAGS
    forgotten = _by_topic(dict.fromkeys(question.forgotten))
    tail = bytearray(lead)
    tail += encode_uvarint(len(forgotten) + 1)
    for topic_id, gone in forgotten.items():
        tail += topic_id + encode_uvarint(len(gone) + 1)
        for index, _ in gone:
            tail += _pack_id(index)
            if pace.is_step_over():
                yield
        tail += _NO_TAGS
    tail += b"\x01"  # no rack

    def body(version: int) -> bytes:
        by_field = version >= _REPLICA_STATE
        # One tagged field, number 1, 13 bytes: replica, its broker's epoch, no tags of its own.
        state = _pack_replica(1, 1, 13, terms.node_id, broker_epoch, 0) if by_field else _NO_TAGS
        limits = _pack_limits(
            wait_ms, terms.min_bytes, terms.max_bytes, 0, question.session_id, question.epoch
        )
        ends = tags if version >= _HIGH_WATERMARK else repeat(_NO_TAGS)
        return b"".join((
            b"" if by_field else _pack_id(terms.node_id),
            limits,
            encode_uvarint(len(by_topic) + 1),
            *chain.from_iterable(zip(heads, ends, strict=False)),
            tail,
            state,
        ))  # fmt: skip

    return body


def _by_topic(asked: Mapping[PartitionId, T]) -> dict[bytes, list[tuple[int, T]]]:
    found: dict[bytes, list[tuple[int, T]]] = {}
    for (topic_id, index), one in asked.items():
        found.setdefault(topic_id, []).append((index, one))
    return found


# -- answers ------------------------------------------------------------------------------------


class PartitionAnswer(NamedTuple):
    """A leader's answer for one partition.

    Attributes:
        error: Kafka's code, 0 without.
        log_start_offset: Of the leader's log.
        diverging: Up to where the logs may agree; None: they do.
        records: Batches, a view of the frame; the last one may be incomplete.
    """

    partition: PartitionId
    error: int
    high_watermark: int
    log_start_offset: int
    diverging: EpochEnd | None
    records: memoryview


class FetchAnswer(NamedTuple):
    """A leader's answer to one Fetch.

    Attributes:
        error: Of the whole answer.
        session_id: 0 without a session.
    """

    error: int
    session_id: int
    partitions: dict[PartitionId, PartitionAnswer]


def walked(frame: memoryview, position: int) -> Steps[FetchAnswer]:
    """Find the partitions of an answer of any of `VERSIONS`.

    Args:
        frame: Kept alive by the views of records.
        position: Of the body's first byte.

    Raises:
        MalformedMessageError: It is not a Fetch answer, or it names a partition twice.
    """
    try:
        found, end = yield from _walked(frame, position)
    except (IndexError, error):
        raise MalformedMessageError("the answer ends too early") from None
    if end != len(frame):
        raise MalformedMessageError(f"{len(frame) - end} bytes follow the answer")
    return found


def _walked(frame: memoryview, position: int) -> Steps[tuple[FetchAnswer, int]]:
    pace = Pace()
    partitions: dict[PartitionId, PartitionAnswer] = {}
    _, top_error, session_id = _unpack_top(frame, position)
    topics, position = _count(frame, position + _TOP_BYTES, _TOPIC_BYTES_MIN)
    for _ in range(topics):
        topic_id = bytes(frame[position : position + _ID_BYTES])
        count, position = _count(frame, position + _ID_BYTES, _PARTITION_BYTES_MIN)
        for _ in range(count):
            one, position = _partition(frame, position, topic_id)
            if one.partition in partitions:
                raise MalformedMessageError("a partition is answered twice")
            partitions[one.partition] = one
            if pace.is_step_over(_UNITS):
                yield
        position = skip_tags(frame, position)
        if pace.is_step_over():
            yield
    return FetchAnswer(top_error, session_id, partitions), skip_tags(frame, position)


def _count(frame: memoryview, position: int, bytes_min: int) -> tuple[int, int]:
    """Length of an array, 0 where it is null; each element has at least `bytes_min` bytes."""
    count, position = read_uvarint(frame, position)
    count = max(count - 1, 0)
    if count * bytes_min > len(frame) - position:
        raise MalformedMessageError(f"{count} elements do not fit into the answer")
    return count, position


def _partition(frame: memoryview, position: int, topic_id: bytes) -> tuple[PartitionAnswer, int]:
    index, code, high_watermark, _, log_start = _unpack_partition(frame, position)
    aborted, position = _count(frame, position + _PARTITION_BYTES, _ABORTED_BYTES_MIN)
    for _ in range(aborted):
        position = skip_tags(frame, position + _ABORTED_BYTES_MIN - 1)
    size, position = _count(frame, position + 4, 1)  # behind the preferred replica
    records = frame[position : position + size]
    diverging, position = _diverging(frame, position + size)
    partition = PartitionAnswer(
        (topic_id, index), code, high_watermark, log_start, diverging, records
    )
    return partition, position


def _diverging(frame: memoryview, position: int) -> tuple[EpochEnd | None, int]:
    """The one tagged field of a partition that a follower needs, and the end of all of them."""
    end, found = skip_tags(frame, position), None
    for tag, at in _tags(frame, position):
        if tag == _DIVERGING:
            epoch, offset = _unpack_diverging(frame, at)
            if epoch >= 0 or offset >= 0:
                found = EpochEnd(epoch, offset)
    return found, end


def _tags(frame: memoryview, position: int) -> Iterator[tuple[int, int]]:
    """Tag and position of each field of a section that `skip_tags` has accepted."""
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        yield tag, position
        position += size
