"""Which requests the layout makes of a store, and what it says when the store is wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rsm_plugins.api import (
    ObjectLister,
    RemoteObjectDamagedError,
    RemoteResourceNotFoundError,
    RemoteStorageManager,
)
from rsm_plugins.layout.objects import object_names
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata
from rsm_plugins.testing import (
    INDEX_BYTES,
    LOG_BYTES,
    RemoteStorageManagerContract,
    copy,
    read,
    segment,
    segment_data,
)
from tests.support.stores.memory_object_store import MemoryManager, MemoryObjectStore

NAMES = object_names(segment())


class TestAnyStore(RemoteStorageManagerContract):
    @pytest.fixture
    def manager(self) -> RemoteStorageManager:
        return MemoryManager()


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def manager(store: MemoryObjectStore) -> MemoryManager:
    return MemoryManager(store)


def test_the_manifest_is_written_last_and_deleted_first(
    manager: MemoryManager, store: MemoryObjectStore
) -> None:
    copied = copy(manager, segment())
    assert [key for _, key in store.requests] == [NAMES.log, NAMES.indexes, NAMES.manifest]
    store.requests.clear()
    manager.delete_log_segment_data(copied)
    assert store.requests[0] == ("delete", NAMES.manifest)
    assert not store.objects


def test_a_range_is_one_request_once_the_manifest_was_seen(
    manager: MemoryManager, store: MemoryObjectStore
) -> None:
    copied = copy(manager, segment())
    store.requests.clear()
    read(manager.fetch_log_segment(copied, 0, 9))
    assert store.requests == [("get", NAMES.manifest), ("get", NAMES.log)]
    store.requests.clear()
    read(manager.fetch_log_segment(copied, 10, 19))
    assert store.requests == [("get", NAMES.log)]


def test_small_indexes_come_with_one_request(
    manager: MemoryManager, store: MemoryObjectStore
) -> None:
    copied = copy(manager, segment())
    read(manager.fetch_log_segment(copied, 0))
    store.requests.clear()
    for kind in INDEX_BYTES:
        assert read(manager.fetch_index(copied, kind)) == INDEX_BYTES[kind]
    assert store.requests == [("get", NAMES.indexes)]


def test_large_indexes_are_read_one_by_one(
    manager: MemoryManager, store: MemoryObjectStore
) -> None:
    data = segment_data()
    data.offset_index.seek(0)
    data.offset_index.write(b"o" * (2 << 20))
    copied = copy(manager, segment(), data)
    assert read(manager.fetch_index(copied, IndexType.OFFSET)) == b"o" * (2 << 20)
    store.requests.clear()
    assert (
        read(manager.fetch_index(copied, IndexType.TIMESTAMP)) == INDEX_BYTES[IndexType.TIMESTAMP]
    )
    assert store.requests == [("get", NAMES.indexes)] * 2


def _foreign(text: bytes) -> bytes:
    return text.replace(
        b'"segmentId": "AAAAAAAAAAAAAAAAAAAAAQ"', b'"segmentId": "' + b"B" * 22 + b'"'
    )


def _shorter_log(text: bytes) -> bytes:
    document = json.loads(text)
    document["objects"]["log"]["sizeBytes"] -= 1
    return json.dumps(document).encode()


def _negative(text: bytes) -> bytes:
    document = json.loads(text)
    document["objects"]["indexes"]["sizeBytes"] = -1
    return json.dumps(document).encode()


def _infinite(text: bytes) -> bytes:
    return text.replace(b'"partition": 0', b'"partition": 1e999')


def _deep(_: bytes) -> bytes:
    return b"[" * 100_000


def _huge(text: bytes) -> bytes:
    return text + b" " * (16 << 20)


@pytest.mark.parametrize(
    "damage",
    [
        _foreign,
        _shorter_log,
        _negative,
        _infinite,
        _deep,
        _huge,
        lambda text: text[:-9],
        lambda _: b"",
    ],
)
def test_a_damaged_or_foreign_manifest_is_never_believed(
    manager: MemoryManager, store: MemoryObjectStore, damage: Callable[[bytes], bytes]
) -> None:
    copied = copy(manager, segment())
    before = store.objects[NAMES.manifest]
    store.objects[NAMES.manifest] = damage(before)
    assert store.objects[NAMES.manifest] != before
    with pytest.raises(RemoteObjectDamagedError):
        manager.fetch_log_segment(copied, 0)


def test_damaged_indexes_are_not_kept(manager: MemoryManager, store: MemoryObjectStore) -> None:
    copied = copy(manager, segment())
    good = store.objects[NAMES.indexes]
    store.objects[NAMES.indexes] = good[:-1] + b"?"
    with pytest.raises(RemoteObjectDamagedError):
        manager.fetch_index(copied, IndexType.OFFSET)
    store.objects[NAMES.indexes] = good
    assert read(manager.fetch_index(copied, IndexType.OFFSET)) == INDEX_BYTES[IndexType.OFFSET]


def test_a_log_read_whole_is_compared_with_the_manifest(
    manager: MemoryManager, store: MemoryObjectStore
) -> None:
    copied = copy(manager, segment())
    store.objects[NAMES.log] = b"?" + LOG_BYTES[1:]
    with pytest.raises(RemoteObjectDamagedError), manager.fetch_log_segment(copied, 0) as stream:
        stream.read()
    with pytest.raises(RemoteObjectDamagedError), manager.fetch_log_segment(copied, 0) as stream:
        stream.read(len(LOG_BYTES))  # and no more: who knows the size need not ask for the end
    store.objects[NAMES.log] = LOG_BYTES[:-1]
    with pytest.raises(RemoteObjectDamagedError), manager.fetch_log_segment(copied, 0) as stream:
        stream.read()


def _other_checksums(text: bytes) -> bytes:
    document = json.loads(text)
    for facts in document["objects"].values():
        facts["crc32c"] ^= 1
    return json.dumps(document).encode()


def _read_log(manager: MemoryManager, copied: RemoteLogSegmentMetadata) -> bytes:
    return read(manager.fetch_log_segment(copied, 0, len(LOG_BYTES) - 1))


def _read_index(manager: MemoryManager, copied: RemoteLogSegmentMetadata) -> bytes:
    return read(manager.fetch_index(copied, IndexType.OFFSET))


@pytest.mark.parametrize(
    ("damage", "read_some", "expected"),
    [
        (_shorter_log, _read_log, LOG_BYTES),
        (_other_checksums, _read_log, LOG_BYTES),
        (_other_checksums, _read_index, INDEX_BYTES[IndexType.OFFSET]),
    ],
)
def test_a_manifest_that_came_damaged_once_is_read_again(
    store: MemoryObjectStore,
    damage: Callable[[bytes], bytes],
    read_some: Callable[[MemoryManager, RemoteLogSegmentMetadata], bytes],
    expected: bytes,
) -> None:
    manager = MemoryManager(store)
    copied = copy(manager, segment())
    good = store.objects[NAMES.manifest]
    store.objects[NAMES.manifest] = damage(good)
    with pytest.raises(RemoteObjectDamagedError):
        read_some(manager, copied)
    store.objects[NAMES.manifest] = good
    assert read_some(manager, copied) == expected


def test_a_store_can_be_listed_by_tools(manager: MemoryManager) -> None:
    copy(manager, segment())
    assert isinstance(manager, ObjectLister)
    assert [found.key for found in manager.list_objects(NAMES.directory)] == [
        NAMES.indexes,
        NAMES.log,
        NAMES.manifest,
    ]


@pytest.mark.parametrize("suffix", [".manifest", ".indexes"])
def test_a_read_after_a_copy_is_answered_by_the_store(tmp_path: Path, suffix: str) -> None:
    manager = LocalFsRemoteStorageManager()
    manager.configure({"dir": str(tmp_path)})
    copied = copy(manager, segment())
    manager.fetch_index(copied, IndexType.OFFSET).close()
    copy(manager, segment())
    [path] = tmp_path.rglob(f"*{suffix}")
    path.unlink()
    with pytest.raises(RemoteResourceNotFoundError):
        manager.fetch_index(copied, IndexType.OFFSET)


def test_a_put_without_facts_is_named(
    manager: MemoryManager, store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "put", lambda key, source: None)
    with pytest.raises(TypeError, match=r"MemoryObjectStore\.put must return ObjectFacts.* None"):
        copy(manager, segment())
