"""What every group of promises stands on: a scratch topic of its own; what an author may set."""

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
    """The run was ended while this promise was asked; no plugin call may start any more."""


class Promises:
    """A promise is a method `test_...` whose docstring is the promise as a sentence.

    It takes a configured plugin as `manager` (or as `unreachable_manager`, whose store does not
    answer, as `refusing_manager`, whose store takes no writes, or in a `flaky_store`, some of whose
    requests fail), raises AssertionError where the promise is broken, and `unittest.SkipTest` where
    it cannot be asked. Each gets an instance of its own, and so a topic of its own: the store need
    not be empty, and several runs may share it.

    Attributes:
        large_segment_bytes: size of the large segments; above the size from which the plugin
            copies in parts, so that those paths are crossed.
        deadline_s: no call and no promise takes longer.
        wrong_settings: each is refused by `configure`. Empty: taken from `SETTINGS` of the plugin.
        settings: with which the plugin was configured; helps where `wrong_settings` is empty.
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
        """Every segment that was or may have been copied, as last known."""
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
        """Metadata of a segment of the scratch topic; `number` makes its id."""
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
        """Copy a segment; returns its metadata as all later calls get it."""
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
        """Neither the log nor any index of the segment is found."""
        gone = RemoteResourceNotFoundError
        expect.fails(gone, lambda: manager.fetch_log_segment(metadata, 0), f"the log of {what}")
        for kind in IndexType:
            call = partial(manager.fetch_index, metadata, kind)
            expect.fails(gone, call, f"index {kind.value} of {what}")

    def clean_up(self, manager: RemoteStorageManager) -> list[str]:
        """Delete everything that was made; returns what could not be deleted, and why."""
        left = []
        for metadata in list(self.made.values()):
            owner = metadata.topic_id_partition
            try:
                manager.delete_log_segment_data(metadata)
            except RemoteResourceNotFoundError:
                continue  # a broken promise, and nothing is left
            except Exception as e:  # noqa: BLE001 - the others are to go, whatever this one raises
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
