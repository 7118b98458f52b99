"""A plugin in memory that keeps every promise, and plugins that break one each.

`Memory` implements the interface directly, not by our layout. Its store is shared by all instances
with the same setting `name`, as a real one is.
"""

import io
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageManager,
    StoredObject,
)
from rsm_plugins.layout.objects import UnsafeNameError, object_names
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata

Parts = dict[IndexType | None, bytes]


@dataclass
class Store:
    segments: dict[str, Parts] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_STORES: defaultdict[str, Store] = defaultdict(Store)


class Memory(RemoteStorageManager):
    def configure(self, configs: Mapping[str, str]) -> None:
        if "name" not in configs:
            raise ValueError("rsm.config.name is missing: allowed is a word")
        self.store = _STORES[configs["name"]]

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        key = self.key(metadata)
        parts: Parts = {None: whole(data.log)}
        if len(parts[None]) != metadata.segment_size_bytes:
            raise RemoteStorageError("another size than announced")
        parts[IndexType.OFFSET] = whole(data.offset_index)
        parts[IndexType.TIMESTAMP] = whole(data.time_index)
        parts[IndexType.PRODUCER_SNAPSHOT] = whole(data.producer_snapshot)
        parts[IndexType.LEADER_EPOCH] = data.leader_epoch_index
        if data.transaction_index is not None:
            parts[IndexType.TRANSACTION] = whole(data.transaction_index)
        self.store.segments[key] = parts
        return None

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        body = self.part(metadata, None)
        last = len(body) - 1 if end_position is None else end_position
        if not 0 <= start_position < len(body) or last < start_position:
            raise ValueError("impossible range")
        return io.BytesIO(body[start_position : last + 1])

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        return io.BytesIO(self.part(metadata, index_type))

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.store.segments.pop(self.key(metadata), None)

    def close(self) -> None:
        pass

    def key(self, metadata: RemoteLogSegmentMetadata) -> str:
        try:
            return object_names(metadata).base
        except UnsafeNameError as e:
            raise RemoteStorageError(str(e)) from e

    def part(self, metadata: RemoteLogSegmentMetadata, kind: IndexType | None) -> bytes:
        try:
            return self.store.segments[self.key(metadata)][kind]
        except KeyError as e:
            raise RemoteResourceNotFoundError("no such part") from e


def whole(source: BinaryIO) -> bytes:
    source.seek(0)
    return source.read()


class BelievesItsStore(Memory):
    """Does not look at what its store answers; one named `full` takes nothing."""

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        if self.takes(data):
            return super().copy_log_segment_data(metadata, data)
        return None

    def configure(self, configs: Mapping[str, str]) -> None:
        super().configure(configs)
        self.is_full = configs["name"] == "full"

    def takes(self, data: LogSegmentData) -> bool:
        return not self.is_full


class BelievesItsStoreOfLargeObjects(BelievesItsStore):
    def takes(self, data: LogSegmentData) -> bool:
        if self.is_full and len(whole(data.log)) < 1 << 20:
            raise RemoteStorageError("no room")
        return super().takes(data)


class LooksAtItsStore(BelievesItsStore):
    def takes(self, data: LogSegmentData) -> bool:
        if self.is_full:
            raise RemoteStorageError("no room")
        return True


class EndIsExclusive(Memory):
    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        last = (
            end_position
            if end_position is None or end_position <= start_position
            else end_position - 1
        )
        return super().fetch_log_segment(metadata, start_position, last)


class IgnoresStart(Memory):
    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        super().fetch_log_segment(metadata, start_position, end_position).close()
        return super().fetch_log_segment(metadata, 0, end_position)


class ShowsHalfCopies(Memory):
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        self.store.segments[self.key(metadata)] = {None: whole(data.log)}
        return super().copy_log_segment_data(metadata, data)


class CopiesOnce(Memory):
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        if self.key(metadata) in self.store.segments:
            raise RemoteStorageError("it is there")
        return super().copy_log_segment_data(metadata, data)


class AppendsTheSecondCopy(Memory):
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        before = self.store.segments.get(self.key(metadata), {}).get(None, b"")
        super().copy_log_segment_data(metadata, data)
        self.store.segments[self.key(metadata)][None] = before + whole(data.log)
        return None


class DeleteWantsIt(Memory):
    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.part(metadata, None)
        super().delete_log_segment_data(metadata)


class RaisesItsOwnErrors(Memory):
    def part(self, metadata: RemoteLogSegmentMetadata, kind: IndexType | None) -> bytes:
        return self.store.segments[self.key(metadata)][kind]


class OneNameIsOneTopic(Memory):
    def key(self, metadata: RemoteLogSegmentMetadata) -> str:
        return super().key(metadata).replace(super().key(metadata).split("/")[0], "topic")


class OffsetsAreNames(Memory):
    def key(self, metadata: RemoteLogSegmentMetadata) -> str:
        return super().key(metadata).split("-0000", 1)[0].rpartition("/")[0] + str(
            metadata.start_offset
        )


class TrustsTopicNames(Memory):
    def key(self, metadata: RemoteLogSegmentMetadata) -> str:
        return f"{metadata.topic_id_partition}/{metadata.id.id.hex()}"


class ClosesTheFiles(Memory):
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        super().copy_log_segment_data(metadata, data)
        data.log.close()
        return None


class ReadsFromWhereFilesStand(Memory):
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        rest = io.BytesIO(data.log.read())
        return super().copy_log_segment_data(
            replace(metadata, segment_size_bytes=len(rest.getvalue())), replace(data, log=rest)
        )


class ManyWordsOfItsOwn(Memory):
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        super().copy_log_segment_data(metadata, data)
        return self.key(metadata).encode()


class TakesAnySetting(Memory):
    def configure(self, configs: Mapping[str, str]) -> None:
        super().configure({"name": "any", **configs})


class Hangs(Memory):
    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        threading.Event().wait()
        return super().fetch_index(metadata, index_type)


class Lister(Memory):
    """Lists its segments as three objects each, as the layout has them."""

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        for base, parts in sorted(self.store.segments.items()):
            for suffix, size in ((".indexes", 100), (".log", len(parts[None])), (".manifest", 9)):
                if (base + suffix).startswith(prefix):
                    yield StoredObject(base + suffix, size, 0)


class ListsTheDeleted(Lister):
    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        if self.key(metadata) in self.store.segments:
            self.store.segments[self.key(metadata)] = {None: b""}

    def part(self, metadata: RemoteLogSegmentMetadata, kind: IndexType | None) -> bytes:
        body = super().part(metadata, kind)
        if not body:
            raise RemoteResourceNotFoundError("deleted")
        return body


class ListsEverything(Lister):
    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        return super().list_objects()


class ListsWrongSizes(Lister):
    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        return (replace(one, size_bytes=1) for one in super().list_objects(prefix))
