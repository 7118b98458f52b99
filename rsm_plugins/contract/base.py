"""The base of every group of promises: a scratch topic, and attributes for the author."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property, partial

from kafka_protocol.wire.primitives import uuid_to_text
from rsm_plugins.api import (
    ClaimKeeper,
    RemoteResourceNotFoundError,
    RemoteStorageManager,
)
from rsm_plugins.contract import expect, samples
from rsm_plugins.segment import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from runtime.raised import described

_NO_SETTINGS: Mapping[str, str] = {}


class Stopped(BaseException):
    """The run was ended during this promise; no plugin call may start any more."""


class Promises:
    """A promise is a method `test_...` whose docstring is the promise as a sentence.

    Its parameter is a configured plugin, `manager`. Some promises take another one instead. The
    store of `unreachable_manager` does not answer, the store of `refusing_manager` accepts no
    writes, and some requests of a `flaky_store` fail. A broken promise raises AssertionError, one
    that does not apply `unittest.SkipTest`. Each promise has an instance and so a topic of its own:
    the store need not be empty, and several runs may share it.

    Attributes:
        large_segment_bytes: Size of the large segments. It must be above the size from which the
            plugin copies in parts, so that these paths are tested.
        deadline_s: Bound of each call and of each promise, in seconds.
        wrong_settings: Each is refused by `configure`. Empty: derived from `SETTINGS` of the
            plugin.
        settings: Settings of the configured plugin; used if `wrong_settings` is empty.
    """

    large_segment_bytes: int = 12 << 20
    deadline_s: float = 120.0
    wrong_settings: Sequence[Mapping[str, str]] = ()
    settings: Mapping[str, str] = _NO_SETTINGS
    stopped: bool = False

    @cached_property
    def topic_id(self) -> bytes:
        """Id of the scratch topic: random, so that nothing else in the store is touched."""
        return os.urandom(16)

    @cached_property
    def made(self) -> dict[object, RemoteLogSegmentMetadata]:
        """Every segment that was or may have been copied, with its latest metadata."""
        return {}

    @cached_property
    def claims(self) -> set[tuple[str, int]]:
        """Cluster id and node id of every claim that was or may have been written."""
        return set()

    def segment(
        self,
        number: int = 1,
        *,
        topic: str = "rsm-contract",
        topic_id: bytes = b"",
        partition: int = 0,
        start_offset: int = 0,
        size_bytes: int = len(samples.LOG_BYTES),
    ) -> RemoteLogSegmentMetadata:
        """Metadata of a segment of the scratch topic; its id is made from `number`."""
        if self.stopped:
            raise Stopped
        metadata = samples.segment(
            number,
            topic=topic,
            topic_id=topic_id or self.topic_id,
            partition=partition,
            start_offset=start_offset,
            size_bytes=size_bytes,
        )
        self.made.setdefault(metadata.id, metadata)
        return metadata

    def copied(
        self,
        manager: RemoteStorageManager,
        metadata: RemoteLogSegmentMetadata | None = None,
        data: LogSegmentData | None = None,
    ) -> RemoteLogSegmentMetadata:
        """Copy a segment; returns its metadata for later calls, custom metadata included."""
        copied = samples.copy(manager, metadata or self.segment(), data)
        self.made[copied.id] = copied
        return copied

    def large(self, manager: RemoteStorageManager) -> tuple[RemoteLogSegmentMetadata, bytes]:
        """Copy a large segment; returns its metadata and its bytes."""
        log = samples.large_log(self.large_segment_bytes)
        metadata = self.segment(size_bytes=len(log))
        return self.copied(manager, metadata, samples.segment_data(log)), log

    def is_gone(
        self, manager: RemoteStorageManager, metadata: RemoteLogSegmentMetadata, what: str
    ) -> None:
        """Expect that neither the log nor any index of the segment is found."""
        gone = RemoteResourceNotFoundError
        expect.fails(gone, lambda: manager.fetch_log_segment(metadata, 0), f"the log of {what}")
        for kind in IndexType:
            call = partial(manager.fetch_index, metadata, kind)
            expect.fails(gone, call, f"index {kind.value} of {what}")

    def clean_up(self, manager: RemoteStorageManager) -> list[str]:
        """Delete everything that was made; return the undeleted rest, with the error."""
        left = []
        for metadata in list(self.made.values()):
            owner = metadata.topic_id_partition
            try:
                manager.delete_log_segment_data(metadata)
            except RemoteResourceNotFoundError:
                continue  # a broken promise, and nothing is left
            except Exception as e:  # noqa: BLE001 - the others must be deleted after any error
                name = f"{owner.topic}-{uuid_to_text(owner.topic_id)}/{owner.partition}"
                left.append(f"segment {metadata.id.id.hex()} of {name}: {described(e)}")
        keeper = manager if isinstance(manager, ClaimKeeper) else None
        for cluster_id, node_id in self.claims:
            if keeper is None:
                break
            try:
                keeper.delete_claim(cluster_id, node_id)
            except Exception as e:  # noqa: BLE001 - as above
                left.append(f"claim of {cluster_id!r}, node {node_id}: {described(e)}")
        return left
