"""A storage plugin on a store of objects: three objects per segment, in our layout.

A segment is complete when its manifest is there, which is written last and deleted first. The
manifest of a segment is read once, before its first byte is served, and remembered. So every later
read of the log is exactly one request. If an object does not match the manifest, the manifest is
read again next time: it may itself have arrived damaged. Only `list_objects` lists the store, for
tools.

Must not know: which store it is; which segments should exist.
"""

import io
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO, ClassVar, Generic, TypeVar

from crc32c import crc32c

from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
    StoredObject,
)
from rsm_plugins.layout import objects as object_layout
from rsm_plugins.layout.claim_object import (
    CLAIM_BYTES_MAX,
    claim_key,
    dump_claim,
    is_claim,
    parse_claim,
)
from rsm_plugins.layout.objects import Manifest, ObjectFacts, ObjectNames
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from rsm_plugins.settings import Setting, read_settings
from runtime.override import override

K = TypeVar("K")
V = TypeVar("V")

_KNOWN_SEGMENTS_MAX = 10_000
_WHOLE_INDEXES_BYTES_MAX = 1 << 20
"""Indexes up to this size are read with one request and kept for the next kind."""
_WHOLE_INDEXES_KEPT = 8
_STREAM_BUFFER_BYTES = 1 << 16
_MANIFEST_BYTES_MAX = 16 << 20
"""Above the size of any list of leader epochs: a larger object is something else."""


class BoundedMap(Generic[K, V]):
    """Remembers at most `count_max` values."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._lock = threading.Lock()
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value, which counts as used now; None if it is not remembered."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._count_max:
                self._values.popitem(last=False)

    def pop(self, key: K) -> None:
        """Forget a value, if it is remembered."""
        with self._lock:
            self._values.pop(key, None)


@dataclass(frozen=True, slots=True)
class _Complete:
    """The facts of a segment whose manifest was read."""

    names: ObjectNames
    log: ObjectFacts
    indexes: ObjectFacts


class LayoutStorageManager(RemoteStorageManager):
    """Keeps segments in an `ObjectStore`; a subclass chooses the store and its settings."""

    SETTINGS: ClassVar[Sequence[Setting]] = ()

    def __init__(self) -> None:
        self._opened: ObjectStore | None = None
        self._complete: BoundedMap[bytes, _Complete] = BoundedMap(_KNOWN_SEGMENTS_MAX)
        self._whole_indexes: BoundedMap[bytes, bytes] = BoundedMap(_WHOLE_INDEXES_KEPT)

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def open_store(self, values: Mapping[str, Any]) -> ObjectStore:
        """Connect to the store.

        Args:
            values: Parsed values of `SETTINGS`, by name.

        Raises:
            ValueError, RemoteStorageError: As of `RemoteStorageManager.configure`.
        """

    def places(self, metadata: RemoteLogSegmentMetadata) -> Sequence[ObjectNames]:
        """Names under which the segment's objects may be.

        A copy writes to the first and a reader looks there; a deletion visits all.

        Raises:
            RemoteStorageError: The custom metadata is not ours, and is not used for any name.
            UnsafeNameError: A part of the metadata cannot be part of a key.
        """
        if metadata.custom_metadata is not None:
            raise RemoteStorageError(
                f"custom metadata is not ours: {metadata.custom_metadata[:100]!r}"
            )
        return (object_layout.object_names(metadata),)

    def custom_metadata(self) -> bytes | None:
        """The custom metadata that `places` will need for a segment copied now."""
        return None

    def custom_metadata_at(self, folder: str, metadata: RemoteLogSegmentMetadata) -> bytes | None:
        """The custom metadata of a segment that is in `folder`, for listings.

        Args:
            folder: Before the layout's own key, without a slash at its end; empty if none.
            metadata: The segment.

        Raises:
            RemoteObjectDamagedError: No copy of the segment can be in that folder.
        """
        if folder:
            raise RemoteObjectDamagedError(f"{folder}: no copy of a segment lies in this folder")
        return None

    # ------------------------------------------------------------------ RemoteStorageManager

    @override
    def configure(self, configs: Mapping[str, str]) -> None:
        self._opened = self.open_store(read_settings(self.SETTINGS, configs))

    @override
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        names = self._places(metadata)[0]
        self._forget(metadata)  # later reads must see the store's present content
        container = object_layout.pack_indexes(_read_indexes(data))
        log = self._put(names.log, data.log)
        if log.size_bytes != metadata.segment_size_bytes:
            raise RemoteStorageError(
                f"log of {log.size_bytes} bytes where {metadata.segment_size_bytes} were"
                f" announced: {names.base}"
            )
        indexes = self._put(names.indexes, io.BytesIO(container))
        manifest = object_layout.dump_manifest(Manifest(metadata, log, indexes))
        self._store.put_once(names.manifest, io.BytesIO(manifest))
        return self.custom_metadata()

    @override
    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        size_bytes = metadata.segment_size_bytes
        last_position = (
            size_bytes - 1 if end_position is None else min(end_position, size_bytes - 1)
        )
        if not 0 <= start_position <= last_position:
            raise ValueError(
                f"start_position={start_position} end_position={end_position}: allowed is"
                f" 0 <= start <= end and start < {size_bytes}"
            )
        segment = self._known(metadata)
        if segment.log.size_bytes != size_bytes:
            self._forget(metadata)
            raise RemoteObjectDamagedError(
                f"{segment.names.log} has {segment.log.size_bytes} bytes, not {size_bytes}"
            )
        stream = self._store.get(segment.names.log, start_position, last_position)
        if start_position == 0 and last_position == size_bytes - 1:
            is_damaged = partial(self._forget, metadata)
            stream = _VerifiedStream(segment.names.log, stream, segment.log, is_damaged)
        return io.BufferedReader(stream, _STREAM_BUFFER_BYTES)

    @override
    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        segment = self._known(metadata)
        key = segment.names.indexes
        try:
            whole = self._whole(metadata.id.id, segment)
            head = whole or self._read(key, 0, object_layout.INDEXES_HEADER_BYTES_MAX)
            section = object_layout.read_indexes_header(head).get(index_type)
            if section is None:
                raise RemoteResourceNotFoundError(f"{key} has no index of kind {index_type.value}")
            if whole:
                body = whole[section.position : section.position + section.length]
            else:
                body = self._read(key, section.position, section.length)
            return io.BytesIO(object_layout.checked_section(section, body))
        except object_layout.DamagedObjectError as e:
            self._forget(metadata)
            raise RemoteObjectDamagedError(f"{key}: {e}") from e

    @override
    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        places = self._places(metadata)
        self._forget(metadata)
        # No reader may find a manifest whose objects are gone.
        self._store.delete([names.manifest for names in places])
        self._store.delete([key for names in places for key in (names.log, names.indexes)])

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """All objects whose key begins with `prefix`, in any order, unfinished uploads excluded."""
        return (one for one in self._store.list_objects(prefix) if not is_claim(one.key))

    def read_manifest(self, key: str) -> Manifest:
        """The manifest of that key, for tools that list the store; later calls accept its metadata.

        Raises:
            RemoteResourceNotFoundError: It is not there any more.
            RemoteObjectDamagedError: It cannot be read, or is of another segment than its key.
            RemoteStorageError, RetriableRemoteStorageError: The store failed.
        """
        manifest = self._parsed_manifest(key)
        parsed = object_layout.parse_key(key)
        meta = manifest.metadata
        try:
            expected = object_layout.object_names(meta).manifest
        except object_layout.UnsafeNameError as e:
            raise RemoteObjectDamagedError(f"{key}: {e}") from e
        if parsed is None or not f"/{key}".endswith(f"/{expected}"):
            raise RemoteObjectDamagedError(f"{key} is of another segment")
        custom = self.custom_metadata_at(key.removesuffix(expected).rstrip("/"), meta)
        return replace(manifest, metadata=replace(meta, custom_metadata=custom))

    def read_claim(self, cluster_id: str, node_id: int) -> int | None:
        """The last number that was written for this broker, None if there is none."""
        key = claim_key(cluster_id, node_id)
        try:
            with io.BufferedReader(self._store.get(key)) as stream:
                data = stream.read(CLAIM_BYTES_MAX + 1)
            return parse_claim(data, cluster_id, node_id)
        except RemoteResourceNotFoundError:
            return None
        except object_layout.DamagedObjectError as e:
            raise RemoteObjectDamagedError(f"{key}: {e}") from e

    def write_claim(self, cluster_id: str, node_id: int, number: int) -> None:
        """Replace this broker's claim; return once the new one survives a power failure."""
        data = dump_claim(cluster_id, node_id, number)
        self._store.put(claim_key(cluster_id, node_id), io.BytesIO(data))

    def delete_claim(self, cluster_id: str, node_id: int) -> None:
        """Delete this broker's claim; succeeds where there is none. For tools: no tier calls it."""
        self._store.delete([claim_key(cluster_id, node_id)])

    def manifest_sizes(self, metadata: RemoteLogSegmentMetadata) -> dict[str, int]:
        """Bytes of the segment's log and indexes from its manifest, by suffix. For tools.

        Raises:
            RemoteStorageError: As of `fetch_index`.
        """
        known = self._known(metadata)
        return {
            object_layout.LOG_SUFFIX: known.log.size_bytes,
            object_layout.INDEXES_SUFFIX: known.indexes.size_bytes,
        }

    @override
    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    # ------------------------------------------------------------------ inside

    @property
    def _store(self) -> ObjectStore:
        assert self._opened is not None, "configure comes first"
        return self._opened

    def _put(self, key: str, source: BinaryIO) -> ObjectFacts:
        facts: object = self._store.put(key, source)
        if not isinstance(facts, ObjectFacts):
            kind = type(self._store).__qualname__
            raise TypeError(f"{kind}.put must return ObjectFacts, it returned {facts!r}")
        return facts

    def _places(self, metadata: RemoteLogSegmentMetadata) -> Sequence[ObjectNames]:
        try:
            return self.places(metadata)
        except object_layout.UnsafeNameError as e:
            raise RemoteStorageError(str(e)) from e

    def _forget(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._complete.pop(metadata.id.id)
        self._whole_indexes.pop(metadata.id.id)

    def _known(self, metadata: RemoteLogSegmentMetadata) -> _Complete:
        """The segment's facts; reads its manifest if that was not read before.

        Raises:
            RemoteResourceNotFoundError: There is no manifest: never copied, partly copied or
                deleted.
            RemoteObjectDamagedError: It cannot be read, or is another segment's.
        """
        names = self._places(metadata)[0]
        known = self._complete.get(metadata.id.id)
        if known is not None and known.names == names:
            return known
        manifest = self._parsed_manifest(names.manifest)
        if manifest.metadata.id.id != metadata.id.id:
            raise RemoteObjectDamagedError(f"{names.manifest} is of another segment")
        known = _Complete(names, manifest.log, manifest.indexes)
        self._complete[metadata.id.id] = known
        return known

    def _parsed_manifest(self, key: str) -> Manifest:
        with io.BufferedReader(self._store.get(key)) as stream:
            text = stream.read(_MANIFEST_BYTES_MAX + 1)
        if len(text) > _MANIFEST_BYTES_MAX:
            raise RemoteObjectDamagedError(f"{key} is no manifest: it is too large")
        try:
            return object_layout.parse_manifest(text)
        except object_layout.DamagedObjectError as e:
            raise RemoteObjectDamagedError(f"{key}: {e}") from e

    def _whole(self, segment_id: bytes, segment: _Complete) -> bytes | None:
        """All of a small container of indexes, None for a large one."""
        known = self._whole_indexes.get(segment_id)
        if known is not None or segment.indexes.size_bytes > _WHOLE_INDEXES_BYTES_MAX:
            return known
        body = self._read(segment.names.indexes, 0, segment.indexes.size_bytes)
        if ObjectFacts(len(body), crc32c(body)) != segment.indexes:
            raise object_layout.DamagedObjectError(
                f"its {len(body)} bytes do not match the manifest"
            )
        self._whole_indexes[segment_id] = body
        return body

    def _read(self, key: str, position: int, length: int) -> bytes:
        if not length:
            return b""
        with io.BufferedReader(self._store.get(key, position, position + length - 1)) as stream:
            return stream.read()


class _VerifiedStream(io.RawIOBase):
    """A whole object that is compared with the manifest at its end."""

    def __init__(
        self,
        key: str,
        stream: io.RawIOBase,
        expected: ObjectFacts,
        is_damaged: Callable[[], None],
    ) -> None:
        self._key, self._stream, self._expected = key, stream, expected
        self._is_damaged = is_damaged
        self._size = self._crc = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: Buffer
        count = self._stream.readinto(buffer) or 0
        self._size += count
        self._crc = crc32c(memoryview(buffer)[:count], self._crc)
        # With its last byte, not after it: a caller that has the size reads no further.
        is_end = self._size == self._expected.size_bytes or (not count and len(buffer) > 0)
        if is_end and ObjectFacts(self._size, self._crc) != self._expected:
            self._is_damaged()
            raise RemoteObjectDamagedError(
                f"{self._key}: {self._size} bytes with CRC32C {self._crc} do not match the"
                f" manifest ({self._expected.size_bytes}, {self._expected.crc32c})"
            )
        return count

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def _read_indexes(data: LogSegmentData) -> dict[IndexType, bytes]:
    indexes = {
        IndexType.OFFSET: _all_of(data.offset_index),
        IndexType.TIMESTAMP: _all_of(data.time_index),
        IndexType.PRODUCER_SNAPSHOT: _all_of(data.producer_snapshot),
        IndexType.LEADER_EPOCH: bytes(data.leader_epoch_index),
    }
    if data.transaction_index is not None:
        indexes[IndexType.TRANSACTION] = _all_of(data.transaction_index)
    return indexes


def _all_of(source: BinaryIO) -> bytes:
    source.seek(0)
    return source.read()
