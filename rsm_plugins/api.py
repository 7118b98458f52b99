"""What a plugin author implements: one class that copies, reads and deletes remote log segments.

Read this first, then `segment.py`; docs/plugin-guide.md has a whole example, and
`rsm_plugins.testing.RemoteStorageManagerContract` is every promise below as a test to inherit. A
store of plain objects needs less: see `layout/store.py`, and `local_fs.py` for the shortest one.

All methods but `configure` and `close` are called from many threads at once. They may block, but
must keep deadlines of their own: a call that hangs for ever costs its thread. Source: KIP-405,
RemoteStorageManager.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Protocol, runtime_checkable

from kafka_protocol.errors import TidemarkError
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata


class RemoteStorageError(TidemarkError):
    """The store failed in a way that trying again will not repair.

    Wrong credentials, no such bucket.
    """


class RetriableRemoteStorageError(RemoteStorageError):
    """The store failed for now; the same call may succeed later."""


class RemoteResourceNotFoundError(RemoteStorageError):
    """The store answered, and what was asked for is not there."""


class RemoteObjectDamagedError(RemoteStorageError):
    """What the store holds is not what was copied there: cut, foreign, or its checksum is wrong."""


class RemoteStorageManager(ABC):
    """A store of remote log segments."""

    @abstractmethod
    def configure(self, configs: Mapping[str, str]) -> None:
        """Take the settings found under `rsm.config.` (prefix removed) and connect.

        Called once, before anything else. `node.id` and `cluster.id` are among the settings.

        Raises:
            ValueError: a setting is missing or wrong; the message names key, value and what is
                allowed.
            RemoteStorageError: the store cannot be used with these settings.
        """

    @abstractmethod
    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bytes | None:
        """Copy one closed segment with its indexes; return when the bytes survive a power cut.

        Idempotent per segment id: a second call writes the same objects again. Until it returns
        nothing of the copy need be readable, and a half copy is never readable as a whole one.

        Returns:
            Custom metadata to be stored with the segment (at most 128 bytes by default), or None.

        Raises:
            RemoteStorageError, RetriableRemoteStorageError: nothing, some or all of it was written.
        """

    @abstractmethod
    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        """Open the segment's log at `start_position` for reading, up to and with `end_position`.

        Args:
            metadata: the segment as known, custom metadata included.
            start_position: first byte, inclusive, from 0.
            end_position: last byte, inclusive; past the end it is clipped; None means to the end.

        Returns:
            A stream of exactly those bytes; the caller closes it, also before its end.

        Raises:
            RemoteResourceNotFoundError: there is no such segment.
            RemoteObjectDamagedError: it is not what was copied (reading the stream may find that
                out, too).
            ValueError: `start_position` is negative, at or beyond the segment's end, or above
                `end_position`.
            RemoteStorageError, RetriableRemoteStorageError: the store failed; the stream raises
                them, too.
        """

    @abstractmethod
    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        """Open one whole index of the segment for reading; the caller closes it.

        Raises:
            RemoteResourceNotFoundError: no such segment, or it has no index of that kind
                (TRANSACTION may be absent).
            RemoteObjectDamagedError: the index was found, and its bytes are not those that were
                copied.
            RemoteStorageError, RetriableRemoteStorageError: the store failed.
        """

    @abstractmethod
    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete every object of the segment, half copies too.

        Deleting what is not there is success.

        Raises:
            RemoteStorageError, RetriableRemoteStorageError: something may be left; call again.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of connections and threads; all streams should be closed. May be called twice."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as a listing shows it.

    Attributes:
        key: relative to the plugin's root or prefix, `/` between its parts.
        size_bytes: its length.
        modified_ms: when it was last written, by the store's clock, ms since 1970.
    """

    key: str
    size_bytes: int
    modified_ms: int


@runtime_checkable
class ObjectLister(Protocol):
    """What a plugin may offer beside `RemoteStorageManager`, for tools alone.

    No serving or deciding path lists a store; `tidemark remote audit` does.
    """

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        """All objects whose key begins with `prefix`, unfinished uploads excluded.

        Raises:
            RemoteStorageError, RetriableRemoteStorageError: the store failed; the listing ends.
        """
        ...


@runtime_checkable
class StorePlace(Protocol):
    """What a plugin may offer beside `RemoteStorageManager`: says which store it has.

    A tiered topic lies only on brokers whose tiers are alike: plugins of one class that name one
    place. Without this protocol all settings of the plugin's `SETTINGS` that are no secrets are
    compared, also those that have nothing to do with the place.
    """

    def store_place(self) -> str:
        """Where the segments lie: the same text for the same store, on every broker.

        Called after `configure`; does not ask the store. Passwords and keys are no part of it.
        """
        ...


@runtime_checkable
class ClaimKeeper(Protocol):
    """What a plugin may offer beside `RemoteStorageManager`: keeps one number for each broker.

    The tier reads its claim before it first writes to the store, and then puts a higher one there.
    A claim above the one that a broker's own files know was written from a later state of these
    files, or from a copy of them on another machine: such a tier copies and deletes nothing. A
    plugin without this protocol cannot find that out (docs/decisions/the-claim.md).

    Several clusters may share a store. Claims are no segments: `list_objects` does not show them,
    and no deletion of a segment touches them.
    """

    def read_claim(self, cluster_id: str, node_id: int) -> int | None:
        """The last number that was written for this broker, None where there is none.

        After `write_claim` has returned, every reader anywhere sees that number or a later one.

        Raises:
            RemoteObjectDamagedError: something is there that is not this broker's claim.
            RemoteStorageError, RetriableRemoteStorageError: the store failed.
        """
        ...

    def write_claim(self, cluster_id: str, node_id: int, number: int) -> None:
        """Write this broker's claim, in place of any other; return when it survives a power cut.

        Args:
            cluster_id: the Kafka cluster's id, of any characters.
            node_id: the broker in it.
            number: from 0 to 2^63 - 1.

        Raises:
            RemoteStorageError, RetriableRemoteStorageError: the old or the new claim is there.
        """
        ...

    def delete_claim(self, cluster_id: str, node_id: int) -> None:
        """Delete this broker's claim; one that is not there is fine. For tools, no tier calls it.

        Raises:
            RemoteStorageError, RetriableRemoteStorageError: it may still be there.
        """
        ...
