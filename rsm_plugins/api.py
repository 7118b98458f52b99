"""The plugin interface of the remote store: one class that copies, reads and deletes log segments.

Read this module first, then `segment.py`. docs/plugin-guide.md has a whole example. Each promise
below is a test of `rsm_plugins.testing.RemoteStorageManagerContract`, which a plugin's own test
class inherits. A store of plain objects needs less code: see `layout/store.py`; the shortest plugin
is `local_fs.py`.

`configure` and `close` are each called from one thread, all other methods from many threads at
once. A method may block, but must limit each request to its store by its own time-out. A call that
never returns holds a thread of the tier. Source: KIP-405, RemoteStorageManager.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

from kafka_protocol.errors import TidemarkError
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata


class RemoteStorageError(TidemarkError):
    """The store failed, and a repeated call will not help: wrong credentials, no such bucket."""


class RetriableRemoteStorageError(RemoteStorageError):
    """The store failed for now: the same call may succeed later, and the caller repeats it."""


class RemoteResourceNotFoundError(RemoteStorageError):
    """The store answered, and the object is not there."""


class RemoteObjectDamagedError(RemoteStorageError):
    """The object is not the one that was copied: truncated, foreign, or with a wrong checksum."""


class RemoteStorageManager(ABC):
    """A store of remote log segments: the abstract base class of every storage plugin."""

    @abstractmethod
    def configure(self, configs: Mapping[str, str]) -> None:
        """Accept the settings found under `rsm.config.` (prefix removed) and connect.

        Called once, before any other method. `node.id` and `cluster.id` are among the settings.

        Raises:
            ValueError: A setting is missing or wrong; the message names the key, its value and the
                allowed values.
            RemoteStorageError: The store cannot be used with these settings.
        """

    @abstractmethod
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        """Copy one closed segment with its indexes; return once the bytes survive a power failure.

        Idempotent per segment id: a second call writes the same objects again. Nothing of the copy
        need be readable until the call returns. An incomplete copy is never readable as a complete
        one.

        Args:
            metadata: The segment; a log whose length is not `segment_size_bytes` is refused with
                RemoteStorageError.
            data: Its files, which stay open and belong to the caller.

        Returns:
            Custom metadata to be stored with the segment (at most
                `remote.log.metadata.custom.metadata.max.bytes`, by default 128 bytes), or None.

        Raises:
            RemoteStorageError, RetriableRemoteStorageError: Nothing, a part or all of it was
                written; the caller deletes the segment or copies it again under the same id.
        """

    @abstractmethod
    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        """Open the segment's log for reading from `start_position` through `end_position`.

        Args:
            metadata: The segment, with the custom metadata that its copy returned.
            start_position: First byte, inclusive, from 0.
            end_position: Last byte, inclusive; a position beyond the segment's end means its end,
                as does None.

        Returns:
            A stream of exactly those bytes. The caller closes it, perhaps before its end and
                perhaps twice. Streams are independent of each other, and one stream is used by one
                thread at a time.

        Raises:
            RemoteResourceNotFoundError: There is no such segment.
            RemoteObjectDamagedError: The object is not the one that was copied; also raised by
                reads of the stream.
            ValueError: `start_position` is negative, at or beyond the segment's end, or above
                `end_position`.
            RemoteStorageError, RetriableRemoteStorageError: The store failed; also raised by reads
                of the stream.
        """

    @abstractmethod
    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """Open one whole index of the segment for reading; the caller closes the stream.

        Raises:
            RemoteResourceNotFoundError: No such segment, or it has no index of that kind (only
                TRANSACTION may be absent).
            RemoteObjectDamagedError: The index was found, and its bytes are not those that were
                copied.
            RemoteStorageError, RetriableRemoteStorageError: The store failed.
        """

    @abstractmethod
    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete every object of the segment, those of an incomplete copy included.

        Succeeds where nothing is there, so it may be repeated. `metadata` may lack the custom
        metadata: a copy that failed returned none.

        Raises:
            RemoteStorageError, RetriableRemoteStorageError: Some objects may be left; the caller
                repeats the call.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections and threads; may be called twice.

        Returns in bounded time even with streams open; their reads may fail from then on.
        """


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object, as a listing of the store shows it.

    Attributes:
        key: Relative to the plugin's root or prefix, with `/` between its parts.
        size_bytes: Length of the object.
        modified_ms: Time of its last write by the store's clock, in ms since 1970.
    """

    key: str
    size_bytes: int
    modified_ms: int


@runtime_checkable
class ObjectLister(Protocol):
    """Optional for a plugin: lists the objects of the store, for tools only.

    `tidemark remote audit` uses it. Brokers and tiers never list a store.
    """

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """All objects whose key begins with `prefix`, in any order, unfinished uploads excluded.

        Raises:
            RemoteStorageError, RetriableRemoteStorageError: The store failed; the listing ends.
        """
        ...


@runtime_checkable
class StorePlace(Protocol):
    """Optional for a plugin: names the store that it uses.

    Replicas of a tiered topic are placed only on brokers with equal tiers: plugins of one class
    that name one place. Without this protocol, all settings of the plugin's `SETTINGS` that are not
    secret are compared, including those that do not concern the place.
    """

    def store_place(self) -> str:
        """The location of the segments: the same text for the same store, on every broker.

        Called after `configure`; sends no request to the store. The text contains no password or
        key.
        """
        ...


@runtime_checkable
class ClaimKeeper(Protocol):
    """Optional for a plugin: keeps one number (a claim) for each broker.

    The tier reads its claim before its first write to the store, and then writes a higher one. If
    the store's claim is above the one in the broker's own files, it was written from a later state
    of these files, or from a copy of them. Then the tier copies and deletes nothing. Without this
    protocol the tier cannot detect that (docs/decisions/the-claim.md).

    Several clusters may share a store. Claims are no segments: `list_objects` leaves them out, and
    no deletion of a segment touches them.
    """

    def read_claim(self, cluster_id: str, node_id: int) -> int | None:
        """The last number that was written for this broker, None if there is none.

        Once `write_claim` has returned, every reader on any machine sees that number or a later
        one.

        Raises:
            RemoteObjectDamagedError: The object is not a claim of this broker.
            RemoteStorageError, RetriableRemoteStorageError: The store failed.
        """
        ...

    def write_claim(self, cluster_id: str, node_id: int, number: int) -> None:
        """Replace this broker's claim; return once the new one survives a power failure.

        Args:
            cluster_id: The Kafka cluster's id, of any characters.
            node_id: The broker's id in that cluster.
            number: From 0 to 2^63 - 1, both inclusive.

        Raises:
            RemoteStorageError, RetriableRemoteStorageError: Either the old or the new claim is
                there.
        """
        ...

    def delete_claim(self, cluster_id: str, node_id: int) -> None:
        """Delete this broker's claim; succeeds where there is none. For tools: no tier calls it.

        Raises:
            RemoteStorageError, RetriableRemoteStorageError: The claim may still be there.
        """
        ...
