"""The layout of a segment in a store: the names of its three objects and the format of two of them.

All our plugins have one layout, so that tools, Spark and people read every store in the same way.
Per segment, under `<topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id>`:

* `.log`: the segment, byte for byte;
* `.indexes`: every index in one object, behind a header with their positions;
* `.manifest`: JSON, the segment's metadata with size and CRC32C of the other two; written last,
  deleted first. A segment without it was never complete.

A topic's name is cut to 232 characters in its folder, because a file system permits 255 for the
folder's name. The id keeps it unique, and the manifest has the whole name.

Names come from metadata records that another process may have written, so they are checked here
before any plugin makes a path or a key of them. Pure: no store, no clock.

The header of `.indexes` is big endian: magic `TMIX`, version (u16), count (u16). Then per index:
kind (u8), 3 zero bytes, CRC32C of its bytes (u32), position from the object's beginning (u64),
length (u64). Last, the CRC32C of all before (u32). Worked example of an object with a single 2-byte
index: 36 bytes of header, the index at position 36, length 2.
"""

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from kafka_protocol.errors import TidemarkError
from kafka_protocol.types import EpochEntry, TopicIdPartition
from kafka_protocol.wire.primitives import uuid_from_text, uuid_to_text
from rsm_plugins.segment import (
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SegmentState,
)

LOG_SUFFIX = ".log"
INDEXES_SUFFIX = ".indexes"
MANIFEST_SUFFIX = ".manifest"

MANIFEST_VERSION = 1
INDEXES_VERSION = 1
_MAGIC = b"TMIX"
_HEAD = struct.Struct(">4sHH")
_ENTRY = struct.Struct(">B3xIQQ")
_CRC = struct.Struct(">I")
_TOPIC_CHARS_MAX = 255 - 1 - 22
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_UUID = "[A-Za-z0-9_-]{22}"
_KEY = re.compile(
    rf"(?:[0-9a-f]{{1,8}}/)?([A-Za-z0-9._-]{{1,{_TOPIC_CHARS_MAX}}})-({_UUID})/"
    r"(0|[1-9][0-9]{0,9})/"
    rf"([0-9]{{20}})-({_UUID})(\.log|\.indexes|\.manifest)",
    re.ASCII,
)
_KINDS: dict[IndexType, int] = {
    IndexType.OFFSET: 0,
    IndexType.TIMESTAMP: 1,
    IndexType.PRODUCER_SNAPSHOT: 2,
    IndexType.TRANSACTION: 3,
    IndexType.LEADER_EPOCH: 4,
}
_KIND_OF = {number: kind for kind, number in _KINDS.items()}

INDEXES_HEADER_BYTES_MAX = _HEAD.size + len(_KINDS) * _ENTRY.size + _CRC.size
"""Bound of the header: a first ranged read of so many bytes finds every index."""


class DamagedObjectError(TidemarkError):
    """An object's bytes are not those that this layout wrote."""


class UnsafeNameError(TidemarkError, ValueError):
    """A name that leads out of the plugin's root, or that no topic can have."""


@dataclass(frozen=True, slots=True)
class ObjectNames:
    """Keys of one segment's objects.

    Relative to the plugin's root or prefix, with `/` between parts.
    """

    base: str

    @property
    def log(self) -> str:
        """Key of the segment's bytes."""
        return self.base + LOG_SUFFIX

    @property
    def indexes(self) -> str:
        """Key of the object with all indexes."""
        return self.base + INDEXES_SUFFIX

    @property
    def manifest(self) -> str:
        """Key of the manifest."""
        return self.base + MANIFEST_SUFFIX

    @property
    def directory(self) -> str:
        """The partition's folder."""
        return self.base.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class IndexSection:
    """Position of one index in a `.indexes` object: `[position, position + length)`."""

    kind: IndexType
    crc32c: int
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """Size and checksum of one object."""

    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a `.manifest`: the segment, with size and CRC32C of its other two objects."""

    metadata: RemoteLogSegmentMetadata
    log: ObjectFacts
    indexes: ObjectFacts


def partition_folder(partition: TopicIdPartition) -> str:
    """The folder of all segments of `partition`, without a slash at either end.

    Raises:
        UnsafeNameError: The topic's name or the partition cannot be part of a path.
    """
    if not _TOPIC.fullmatch(partition.topic) or partition.topic in {".", ".."}:
        raise UnsafeNameError(f"topic={partition.topic[:100]!r} cannot be part of an object's name")
    if partition.partition < 0 or len(partition.topic_id) != 16:
        raise UnsafeNameError(f"partition={partition.partition} or its topic id is not one")
    name = partition.topic[:_TOPIC_CHARS_MAX]
    return f"{name}-{uuid_to_text(partition.topic_id)}/{partition.partition}"


def object_names(metadata: RemoteLogSegmentMetadata) -> ObjectNames:
    """Names of the objects of a segment.

    Raises:
        UnsafeNameError: Topic, partition, id or start offset cannot be part of a path.
    """
    if metadata.start_offset < 0 or len(metadata.id.id) != 16:
        raise UnsafeNameError(f"start_offset={metadata.start_offset} or the segment id is not one")
    folder = partition_folder(metadata.topic_id_partition)
    return ObjectNames(f"{folder}/{metadata.start_offset:020d}-{uuid_to_text(metadata.id.id)}")


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """The parts of an object's name.

    Attributes:
        base: The key without its suffix, as in `ObjectNames`.
        topic: Perhaps cut, as described in the module's docstring.
        suffix: `.log`, `.indexes` or `.manifest`.
    """

    base: str
    topic: str
    topic_id: bytes
    partition: int
    start_offset: int
    segment_id: bytes
    suffix: str


def parse_key(key: str) -> ParsedKey | None:
    """Parse the name of an object; None if this layout gives no object such a name.

    The inverse of `object_names`, character for character. A plugin may put a folder of up to 8 hex
    digits before it (S3's entropy).
    """
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    topic, topic_id, partition, offset, segment_id, suffix = found.groups()
    try:
        parsed = ParsedKey(
            key.removesuffix(suffix),
            topic,
            uuid_from_text(topic_id),
            int(partition),
            int(offset),
            uuid_from_text(segment_id),
            suffix,
        )
    except ValueError:
        return None
    canonical = uuid_to_text(parsed.topic_id), uuid_to_text(parsed.segment_id)
    possible = parsed.partition < 1 << 31 and parsed.start_offset < 1 << 63
    ours = canonical == (topic_id, segment_id) and possible and topic not in {".", ".."}
    return parsed if ours else None


def check_key(key: str) -> str:
    """Return a relative key if it consists of plain parts.

    For keys from custom metadata or settings.

    Raises:
        UnsafeNameError: It is absolute, empty, or has a part that is empty, `.`, `..` or contains a
            NUL or backslash.
    """
    parts = key.split("/")
    if any(part in {"", ".", ".."} or "\0" in part or "\\" in part for part in parts):
        raise UnsafeNameError(f"key={key[:200]!r} is not a plain relative key")
    return key


def folder_of_prefix(prefix: str) -> str | None:
    """The folder that contains all keys with that prefix, empty for the root.

    Returns:
        None if no key can begin so (`../x`, `/x`): a listing shows nothing, and must not look
            there.
    """
    folder, slash, _ = prefix.rpartition("/")
    try:
        return check_key(folder) if slash else ""
    except UnsafeNameError:
        return None


def pack_indexes(indexes: Mapping[IndexType, bytes]) -> bytes:
    """All indexes of a segment as the bytes of one `.indexes` object."""
    ordered = sorted(indexes, key=_KINDS.__getitem__)
    header_bytes = _HEAD.size + len(ordered) * _ENTRY.size + _CRC.size
    out = bytearray(_HEAD.pack(_MAGIC, INDEXES_VERSION, len(ordered)))
    position = header_bytes
    for kind in ordered:
        body = indexes[kind]
        out += _ENTRY.pack(_KINDS[kind], crc32c(body), position, len(body))
        position += len(body)
    out += _CRC.pack(crc32c(bytes(out)))
    for kind in ordered:
        out += indexes[kind]
    return bytes(out)


def read_indexes_header(head: bytes) -> dict[IndexType, IndexSection]:
    """The position of each index, from the first bytes of an `.indexes` object.

    Args:
        head: Its first `INDEXES_HEADER_BYTES_MAX` bytes, or all of a shorter object.

    Returns:
        Sections of the known kinds; kinds of later versions are left out.

    Raises:
        DamagedObjectError: It is truncated, foreign, or its checksum is wrong.
    """
    if len(head) < _HEAD.size:
        raise DamagedObjectError(f"indexes object of {len(head)} bytes has no header")
    magic, version, count = _HEAD.unpack_from(head)
    end = _HEAD.size + count * _ENTRY.size
    if magic != _MAGIC or version != INDEXES_VERSION or count > 64 or len(head) < end + _CRC.size:
        raise DamagedObjectError(
            f"not a header of indexes: magic={magic!r} version={version} count={count}"
        )
    if _CRC.unpack_from(head, end)[0] != crc32c(head[:end]):
        raise DamagedObjectError("checksum of the indexes' header is wrong")
    sections: dict[IndexType, IndexSection] = {}
    for number in range(count):
        kind, crc, position, length = _ENTRY.unpack_from(head, _HEAD.size + number * _ENTRY.size)
        if kind in _KIND_OF:
            sections[_KIND_OF[kind]] = IndexSection(_KIND_OF[kind], crc, position, length)
    return sections


def checked_section(section: IndexSection, body: bytes) -> bytes:
    """Return the bytes of one index after comparing length and checksum.

    Raises:
        DamagedObjectError: They differ from the header.
    """
    if len(body) != section.length or crc32c(body) != section.crc32c:
        raise DamagedObjectError(
            f"index is damaged: kind={section.kind.value} length={len(body)}"
            f" expected={section.length}"
        )
    return body


def dump_manifest(manifest: Manifest) -> bytes:
    """A manifest as JSON text, keys in a fixed order, with one line end."""
    meta = manifest.metadata
    custom = meta.custom_metadata
    document = {
        "version": MANIFEST_VERSION,
        "topic": meta.topic_id_partition.topic,
        "topicId": uuid_to_text(meta.topic_id_partition.topic_id),
        "partition": meta.topic_id_partition.partition,
        "segmentId": uuid_to_text(meta.id.id),
        "startOffset": meta.start_offset,
        "endOffset": meta.end_offset,
        "maxTimestampMs": meta.max_timestamp_ms,
        "eventTimestampMs": meta.event_timestamp_ms,
        "brokerId": meta.broker_id,
        "segmentSizeInBytes": meta.segment_size_bytes,
        "segmentLeaderEpochs": [[entry.epoch, entry.start_offset] for entry in meta.leader_epochs],
        "txnIndexEmpty": meta.txn_index_empty,
        "customMetadata": None if custom is None else custom.hex(),
        "objects": {
            "log": {"sizeBytes": manifest.log.size_bytes, "crc32c": manifest.log.crc32c},
            "indexes": {
                "sizeBytes": manifest.indexes.size_bytes,
                "crc32c": manifest.indexes.crc32c,
            },
        },
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def parse_manifest(data: bytes) -> Manifest:
    """Parse a manifest; its segment is in COPY_SEGMENT_FINISHED, since no other has one.

    Raises:
        DamagedObjectError: Not JSON, another version, or a field is missing, of another type or
            impossible.
    """
    try:
        document: Any = json.loads(data)
        if document["version"] != MANIFEST_VERSION:
            raise DamagedObjectError(
                f"manifest version={document['version']!r}, known is {MANIFEST_VERSION}"
            )
        partition = TopicIdPartition(
            uuid_from_text(document["topicId"]), int(document["partition"]), str(document["topic"])
        )
        custom = document["customMetadata"]
        metadata = RemoteLogSegmentMetadata(
            id=RemoteLogSegmentId(partition, uuid_from_text(document["segmentId"])),
            start_offset=int(document["startOffset"]),
            end_offset=int(document["endOffset"]),
            max_timestamp_ms=int(document["maxTimestampMs"]),
            broker_id=int(document["brokerId"]),
            event_timestamp_ms=int(document["eventTimestampMs"]),
            segment_size_bytes=int(document["segmentSizeInBytes"]),
            leader_epochs=tuple(
                EpochEntry(int(e), int(o)) for e, o in document["segmentLeaderEpochs"]
            ),
            state=SegmentState.COPY_SEGMENT_FINISHED,
            custom_metadata=None if custom is None else bytes.fromhex(custom),
            txn_index_empty=bool(document["txnIndexEmpty"]),
        )
        objects = document["objects"]
        return Manifest(metadata, _facts(objects["log"]), _facts(objects["indexes"]))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as e:
        raise DamagedObjectError(f"manifest cannot be read: {e}") from e


def _facts(document: Mapping[str, int]) -> ObjectFacts:
    facts = ObjectFacts(int(document["sizeBytes"]), int(document["crc32c"]))
    if facts.size_bytes < 0:
        raise ValueError(f"sizeBytes={facts.size_bytes}")
    return facts
