"""The tier killed at every request that the layout makes of a store of objects.

Finer than the steps of a task: between, before, within and after the puts and deletions of one
copy or one deletion. A put that is cut leaves something behind, as an upload in parts does, or
lands after its sender is dead. Whatever happens: a manifest vouches for what is there, nothing is
lost, nothing is left (docs/tiering.md §5, 1, 2 and 4).
"""

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from crc32c import crc32c

from rlm.link.messages import PartitionSettings
from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
    StoredObject,
)
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.layout.objects import ObjectFacts
from rsm_plugins.layout.store import ObjectStore
from rsm_plugins.segment import IndexType
from tests.support.tier.log_in_memory import PARTITION, Killed
from tests.support.tier.scene import COPY_MAX_MS, Scene

REQUESTS_OF_A_COPY = 3
REQUESTS_OF_A_DELETION = 3


class When(Enum):
    """Where in a request the tier dies, or the request fails."""

    BEFORE = "nothing was done"
    WITHIN = "a put has left debris; a deletion was done"
    LATE = "as within, and the put lands when it is told to"
    AFTER = "all was done, nobody knows"


class Store(ObjectStore):
    """Objects and debris of cut puts in memory; the nth request ends in `ending`.

    Every key of a deletion counts as a request of its own.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.debris: set[str] = set()
        self.late: list[tuple[str, bytes]] = []
        self.requests = 0
        self.stop_at: int | None = None
        self.when = When.BEFORE
        self.ending: Callable[[], BaseException] = Killed

    def put(self, key: str, source: BinaryIO) -> ObjectFacts:
        source.seek(0)
        body = source.read()
        self._reach(When.BEFORE)
        self.debris.add(key)
        if self._is_here() and self.when is When.LATE:
            self.late.append((key, body))
        self._reach(When.WITHIN, When.LATE)
        self.debris.discard(key)
        self.objects[key] = body
        self._check_manifests()
        self._reach(When.AFTER)
        return ObjectFacts(len(body), crc32c(body))

    def get(self, key: str, first: int = 0, last: int | None = None) -> io.RawIOBase:
        if key not in self.objects:
            raise RemoteResourceNotFoundError(key)
        body = self.objects[key]
        return io.BytesIO(body[first : None if last is None else last + 1])  # type: ignore[return-value]

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._reach(When.BEFORE)
            self.objects.pop(key, None)
            self.debris.discard(key)
            self._check_manifests()
            self._reach(When.WITHIN, When.LATE, When.AFTER)

    def list_objects(self, prefix: str = "") -> Iterator[StoredObject]:
        raise AssertionError("no task lists a store")

    def close(self) -> None:
        pass

    def land(self) -> None:
        """What was under way when its sender died arrives."""
        for key, body in self.late:
            self.debris.discard(key)
            self.objects[key] = body
        self.late.clear()

    def _is_here(self) -> bool:
        return self.requests == self.stop_at

    def _reach(self, *now: When) -> None:
        if When.BEFORE in now:
            self.requests += 1
        if self._is_here() and self.when in now:
            raise self.ending()

    def _check_manifests(self) -> None:
        """Each manifest vouches for both objects beside it."""
        for key, body in self.objects.items():
            stem, _, kind = key.rpartition(".")
            if kind == "manifest":
                for other, facts in json.loads(body)["objects"].items():
                    found = self.objects.get(f"{stem}.{other}", b"")
                    assert len(found) == facts["sizeBytes"], f"{stem}.{other}"
                    assert crc32c(found) == facts["crc32c"], f"{stem}.{other}"


class Plugin(LayoutStorageManager):
    def __init__(self, store: Store) -> None:
        super().__init__()
        self._given = store
        self.configure({})

    def open_store(self, values: Mapping[str, Any]) -> ObjectStore:
        return self._given


class StoreScene(Scene):
    """One broker and one store of objects; each tier has a plugin that remembers nothing."""

    def __init__(self, settings: PartitionSettings | None = None) -> None:
        self.store = Store()
        super().__init__(Path(), settings)

    def open_storage(self) -> RemoteStorageManager:
        return Plugin(self.store)

    def objects(self) -> list[str]:
        return [*self.store.objects, *(f"debris of {key}" for key in self.store.debris)]

    def fail(self, ending: type[BaseException]) -> None:
        """Let passes run into the ordered failure."""
        self.store.ending = ending
        with contextlib.suppress(ending):
            self.pass_all()
        assert self.store.requests >= (self.store.stop_at or 0)
        if ending is Killed:
            self.broker.restart()
            self.start_tier()

    def settle_with_late_puts(self) -> None:
        """As `settle`; what is late lands after the first pass, before the copy maximum."""
        self.pass_all()
        self.store.land()
        self.clock.advance(COPY_MAX_MS + 1)
        self.pass_all()
        self.clock.advance(COPY_MAX_MS + 1)
        self.pass_all()


def copying() -> StoreScene:
    """Two closed segments wait to be copied."""
    scene = StoreScene()
    scene.broker.fill(2)
    return scene


def expiring() -> StoreScene:
    """Three of four remote segments are too much."""
    scene = StoreScene()
    scene.broker.fill(4)
    scene.pass_all()
    scene.broker.expire_local()
    scene.clock.advance(COPY_MAX_MS + 1)
    scene.settings = PartitionSettings(retention_bytes=400)
    scene.store.requests = 0
    return scene


def both() -> StoreScene:
    """As `expiring`, with more to copy."""
    scene = expiring()
    scene.broker.fill(1)
    return scene


@pytest.mark.parametrize("ending", [Killed, RetriableRemoteStorageError])
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("begin", [copying, expiring, both])
def test_ended_at_any_request_nothing_is_lost_and_nothing_leaks(
    begin: Callable[[], StoreScene], when: When, ending: type[BaseException]
) -> None:
    probe = begin()
    probe.settle()
    total = probe.store.requests
    assert total >= 2 * REQUESTS_OF_A_COPY if begin is copying else total > REQUESTS_OF_A_DELETION
    for request in range(1, total + 1):
        scene = begin()
        scene.store.stop_at, scene.store.when = request, when
        scene.fail(ending)
        scene.broker.expire_local()
        scene.check_readable()
        scene.settle_with_late_puts()
        scene.broker.expire_local()
        scene.check_readable()
        scene.check_no_leak()
        assert scene.broker.log_start == probe.broker.log_start, request
        assert scene.broker.copied == probe.broker.copied, request


def test_a_half_copy_is_not_readable_at_any_request() -> None:
    for request in range(1, REQUESTS_OF_A_COPY + 1):
        scene = copying()
        scene.store.stop_at, scene.store.when = request, When.BEFORE
        scene.fail(Killed)
        plugin = Plugin(scene.store)
        for segment in scene.metadata.list_segments(PARTITION):
            with pytest.raises(RemoteResourceNotFoundError):
                plugin.fetch_log_segment(segment, 0)
            for kind in IndexType:
                with pytest.raises(RemoteResourceNotFoundError):
                    plugin.fetch_index(segment, kind)
