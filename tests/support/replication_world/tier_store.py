"""The one store of all brokers' tiers: objects in memory, under the layout of our own plugins.

A call takes time, may fail, and may have done its work before it fails. A PUT of a tier that ends
meanwhile may land later: nobody is there to be told.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, BinaryIO

from crc32c import crc32c

from rsm_plugins.api import (
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
    StoredObject,
)
from rsm_plugins.layout.claim_object import is_claim
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.objects import ObjectFacts
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.segment import RemoteLogSegmentMetadata
from tests.support.replication_world.tier_lies import Lies
from tests.support.sim.memory_disk import ProcessEnded
from tests.support.sim.pool_work import current_job

if TYPE_CHECKING:
    from tests.support.replication_world.tier_process import TierProcess
    from tests.support.replication_world.world import ReplicationWorld

PUT, GET, DELETE = "put", "get", "delete"
LATE_PUT_US = 3_000_000


class RemoteObjects:
    """What lies in the store, and how it answers; it belongs to no process.

    Attributes:
        objects: bytes by key.
        is_away_until, is_slow_until, loses_answers_until: faults, in the world's time.
        lies: what it says, but has not done.
    """

    def __init__(self, world: "ReplicationWorld") -> None:
        self.world = world
        self.objects: dict[str, bytes] = {}
        self.rng = Random(f"replication-store-{world.plan.seed}")
        self.lies = Lies(world.plan.seed)
        self.is_away_until = self.is_slow_until = self.loses_answers_until = 0

    def heal(self) -> None:
        """End all faults."""
        self.is_away_until = self.is_slow_until = self.loses_answers_until = 0
        self.lies.heal()

    def segments(self) -> list[str]:
        """Keys of all objects that are no claims."""
        return [key for key in self.objects if not is_claim(key)]

    def call_us(self) -> int:
        """How long the next call takes."""
        mean = 1_500_000 if self.is_slow_until > self.world.now_us else 5_000
        return 200 + int(2 * mean * self.rng.random())


class ObjectClient(ObjectStore):
    """The store as one tier process reaches it."""

    def __init__(self, remote: RemoteObjects, process: "TierProcess") -> None:
        self._remote, self._process = remote, process

    def _takes(self) -> None:
        remote, job = self._remote, current_job()
        if job is not None:
            job.take(remote.call_us())
            if self._process.has_ended:
                raise ProcessEnded
        if remote.is_away_until > remote.world.now_us:
            raise RetriableRemoteStorageError("the store is away")

    def _answers(self) -> None:
        remote = self._remote
        if remote.loses_answers_until > remote.world.now_us and remote.rng.random() < 0.5:
            raise RetriableRemoteStorageError("the answer is lost")

    def put(self, key: str, source: BinaryIO) -> ObjectFacts:
        source.seek(0)
        data = source.read()
        remote = self._remote
        try:
            self._takes()
        except ProcessEnded:
            late_us = int(2 * LATE_PUT_US * remote.rng.random()) - LATE_PUT_US
            if late_us > 0:
                remote.world.at(remote.world.now_us + late_us, self._lands, key, data)
            raise
        landed = remote.lies.landed(remote.world.now_us, key, data)
        if landed is not None:
            remote.objects[key] = landed
        self._answers()
        return ObjectFacts(len(data), crc32c(data))

    def _lands(self, key: str, data: bytes) -> None:
        self._remote.objects[key] = data

    def get(self, key: str, first: int = 0, last: int | None = None) -> io.RawIOBase:
        self._takes()
        self._answers()
        remote, now_us = self._remote, self._remote.world.now_us
        data = remote.objects.get(key)
        if data is None or remote.lies.is_hidden(now_us, key):
            raise RemoteResourceNotFoundError(key)
        if first >= len(data):
            raise RemoteObjectDamagedError(f"{key} ends at {len(data)}")
        asked = data[first : None if last is None else last + 1]
        return _Bytes(remote.lies.given(now_us, asked))

    def delete(self, keys: Sequence[str]) -> None:
        self._takes()
        for key in keys:
            self._remote.objects.pop(key, None)
        self._answers()

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        raise AssertionError("nothing here lists the store")

    def close(self) -> None:
        """It holds nothing."""


class _Bytes(io.RawIOBase):
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._data[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


class ObjectsStorageManager(LayoutStorageManager):
    """The storage plugin of one tier process."""

    def __init__(self, remote: RemoteObjects, process: "TierProcess") -> None:
        super().__init__()
        self._remote, self._process = remote, process

    def open_store(self, values: Mapping[str, Any]) -> ObjectStore:
        return ObjectClient(self._remote, self._process)

    def store_place(self) -> str:
        return "the one store"

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        world = self._remote.world
        world.tier_validator.deletes_objects(self._process.node, metadata)
        super().delete_log_segment_data(metadata)
