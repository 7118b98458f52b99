"""Encodes the answer to Fetch by hand, as a gather list.

Record data are not copied: the list alternates between encoded bytes and file regions. A
partition's fixed fields are one `pack`.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from broker.handlers import fetch_versions as since
from broker.replica.fetch_types import PartitionRead
from broker.topics.cluster import BrokerAddress
from kafka_protocol.wire.primitives import encode_uvarint
from runtime.work import Steps, at_once

SLICE_PARTITIONS: Final = 500
NO_REPLICA: Final = b"\xff\xff\xff\xff"
"""-1: no preferred read replica."""

_pack_4 = Struct(">ihqq").pack
_pack_5 = Struct(">ihqqq").pack
_pack_count = Struct(">i").pack
_pack_length = Struct(">h").pack
_pack_aborted = Struct(">qq").pack
_pack_session = Struct(">ihi").pack
_pack_diverging = Struct(">iq").pack
_pack_leader = Struct(">ii").pack


def encode_answer(
    version: int,
    error: int,
    session_id: int,
    reads: Sequence[PartitionRead],
    endpoints: bytes = b"",
) -> list[object]:
    """Encode the body of a Fetch response without slices."""
    return at_once(encode_in_slices(version, error, session_id, reads, endpoints))


def encode_endpoints(brokers: Iterable[BrokerAddress]) -> bytes:
    """Encode the endpoints of brokers for the tagged field of version 16 (KIP-951)."""
    entries = [
        _pack_count(one.id)
        + _compact(one.host)
        + _pack_count(one.port)
        + (b"\0" if one.rack is None else _compact(one.rack))
        + b"\0"
        for one in brokers
    ]
    return encode_uvarint(len(entries) + 1) + b"".join(entries)


def _compact(text: str) -> bytes:
    data = text.encode()
    return encode_uvarint(len(data) + 1) + data


def encode_in_slices(
    version: int,
    error: int,
    session_id: int,
    reads: Sequence[PartitionRead],
    endpoints: bytes = b"",
) -> Steps[list[object]]:
    """Encode the body of a Fetch response; yields between slices of partitions.

    Args:
        version: 4 to 18.
        error: Top-level code, for sessions.
        session_id: 0 without a session.
        reads: Partitions in answer order; neighbours of one topic share its entry.
        endpoints: Result of `encode_endpoints`, sent where a partition names its leader.

    Returns:
        Bytes and file regions, in wire order.
    """
    parts: list[object] = []
    flexible = version >= since.FLEXIBLE
    out = bytearray(
        _pack_session(0, error, session_id) if version >= since.SESSIONS else b"\0\0\0\0"
    )
    groups = _by_topic(reads)
    out += encode_uvarint(len(groups) + 1) if flexible else _pack_count(len(groups))
    written = 0
    for group in groups:
        out += _topic_head(version, group)
        for read in group:
            if written and written % SLICE_PARTITIONS == 0:
                yield
            out = _partition(version, read, out, parts)
            written += 1
        if flexible:
            out += b"\0"
    if flexible:
        out += _top_tags(endpoints)
    parts.append(bytes(out))
    return parts


def _top_tags(endpoints: bytes) -> bytes:
    if not endpoints:
        return b"\0"
    return b"\x01\x00" + encode_uvarint(len(endpoints)) + endpoints


def _by_topic(reads: Sequence[PartitionRead]) -> list[list[PartitionRead]]:
    groups: list[list[PartitionRead]] = []
    last: object = None
    for read in reads:
        topic = read.fetch.key[0]
        if topic != last:
            groups.append([])
            last = topic
        groups[-1].append(read)
    return groups


def _topic_head(version: int, group: Sequence[PartitionRead]) -> bytes:
    topic = group[0].fetch.key[0]
    if version >= since.TOPIC_IDS:
        assert isinstance(topic, bytes)
        return topic + encode_uvarint(len(group) + 1)
    assert isinstance(topic, str)
    name = topic.encode()
    if version >= since.FLEXIBLE:
        return encode_uvarint(len(name) + 1) + name + encode_uvarint(len(group) + 1)
    return _pack_length(len(name)) + name + _pack_count(len(group))


def _nearer(read: PartitionRead) -> bytes:
    return NO_REPLICA if read.nearer is None else _pack_count(read.nearer)


def _partition(version: int, read: PartitionRead, out: bytearray, parts: list[object]) -> bytearray:
    """Encode one partition; returns the buffer for the bytes after it."""
    fixed = (read.fetch.index, read.error, read.high_watermark, read.last_stable_offset)
    if version >= since.LOG_START:
        out += _pack_5(*fixed, read.log_start_offset)
    else:
        out += _pack_4(*fixed)
    aborted = read.aborted
    size = read.size_bytes
    if version < since.FLEXIBLE:
        if aborted is None:
            out += b"\xff\xff\xff\xff"
        else:
            out += _pack_count(len(aborted))
            for producer_id, first_offset in aborted:
                out += _pack_aborted(producer_id, first_offset)
        if version >= since.READ_REPLICA:
            out += _nearer(read)
        out += _pack_count(size)
    else:
        if aborted is None:
            out += b"\0"
        else:
            out += encode_uvarint(len(aborted) + 1)
            for producer_id, first_offset in aborted:
                out += _pack_aborted(producer_id, first_offset) + b"\0"
        out += _nearer(read)
        out += encode_uvarint(size + 1)
    if size:
        parts.append(bytes(out))
        parts.extend(read.regions)
        out = bytearray()
    if version >= since.FLEXIBLE:
        if read.diverging is not None:
            # One tagged field, number 0, 13 bytes: epoch, end offset, no tags of its own.
            out += b"\x01\x00\x0d" + _pack_diverging(*read.diverging) + b"\0"
        elif read.leader is not None and version >= since.NODE_ENDPOINTS:
            # One tagged field, number 1, 9 bytes: leader, epoch, no tags of its own.
            out += b"\x01\x01\x09" + _pack_leader(*read.leader) + b"\0"
        else:
            out += b"\0"
    return out
