"""The store that fails on demand fails as demanded, and only so often."""

import threading
from pathlib import Path

import pytest

from rsm_plugins.api import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import IndexType
from rsm_plugins.testing import (
    INDEX_BYTES,
    LOG_BYTES,
    Body,
    BreakingFile,
    FaultyStorage,
    Operation,
    copy,
    read,
    segment,
)


@pytest.fixture
def storage(tmp_path: Path) -> FaultyStorage:
    storage = FaultyStorage(LocalFsRemoteStorageManager())
    storage.configure({"dir": str(tmp_path)})
    return storage


def test_a_short_body_ends_early_and_says_nothing(storage: FaultyStorage) -> None:
    copied = copy(storage, segment())
    storage.damage_next(Operation.FETCH, Body(short_after=700))
    assert read(storage.fetch_log_segment(copied, 100)) == LOG_BYTES[100:800]
    assert read(storage.fetch_log_segment(copied, 100)) == LOG_BYTES[100:]


def test_one_bit_of_one_byte_is_flipped(storage: FaultyStorage) -> None:
    copied = copy(storage, segment())
    storage.damage_next(Operation.FETCH_INDEX, Body(flip_at=3))
    whole = INDEX_BYTES[IndexType.OFFSET]
    flipped = whole[:3] + bytes([whole[3] ^ 1]) + whole[4:]
    assert read(storage.fetch_index(copied, IndexType.OFFSET)) == flipped
    assert read(storage.fetch_index(copied, IndexType.OFFSET)) == whole


def test_a_reset_comes_in_the_middle_of_the_body(storage: FaultyStorage) -> None:
    copied = copy(storage, segment())
    storage.damage_next(Operation.FETCH, Body(reset_after=5_000), times=2)
    for _ in range(2):
        with storage.fetch_log_segment(copied, 0) as stream:
            assert stream.read(5_000) == LOG_BYTES[:5_000]
            with pytest.raises(RetriableRemoteStorageError):
                stream.read(1)
    assert read(storage.fetch_log_segment(copied, 0)) == LOG_BYTES


def test_a_slow_first_byte_comes_when_it_is_let_go(storage: FaultyStorage) -> None:
    copied = copy(storage, segment())
    gate = threading.Event()
    storage.damage_next(Operation.FETCH, Body(slow_until=gate))
    stream = storage.fetch_log_segment(copied, 0)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(read(stream)))
    reader.start()
    assert got == []
    gate.set()
    reader.join(30)
    assert got == [LOG_BYTES]


def test_a_copy_is_applied_although_its_answer_is_lost(storage: FaultyStorage) -> None:
    storage.fail_next_after(Operation.COPY, RetriableRemoteStorageError("lost"))
    with pytest.raises(RetriableRemoteStorageError):
        copy(storage, segment())
    assert read(storage.fetch_log_segment(segment(), 0)) == LOG_BYTES


def test_a_cut_copy_is_no_copy(storage: FaultyStorage) -> None:
    storage.cut_copies_after = 1_000
    with pytest.raises(RetriableRemoteStorageError, match="broke"):
        copy(storage, segment())
    storage.cut_copies_after = None
    with pytest.raises(RemoteResourceNotFoundError):
        storage.fetch_log_segment(segment(), 0)


def test_an_eventual_store_hides_what_is_new(storage: FaultyStorage) -> None:
    storage.hide_reads = 2
    copied = copy(storage, segment())
    for _ in range(2):
        with pytest.raises(RemoteResourceNotFoundError):
            storage.fetch_index(copied, IndexType.OFFSET)
    assert read(storage.fetch_log_segment(copied, 0)) == LOG_BYTES


def test_calls_are_counted_also_when_the_store_is_down(storage: FaultyStorage) -> None:
    storage.down = True
    with pytest.raises(RemoteStorageError):
        storage.delete_log_segment_data(segment())
    assert [call.operation for call in storage.calls] == [Operation.DELETE]


def test_a_held_call_waits_until_it_is_let_go(storage: FaultyStorage) -> None:
    storage.hold(Operation.DELETE)
    ended = threading.Event()

    def delete() -> None:
        storage.delete_log_segment_data(segment())
        ended.set()

    caller = threading.Thread(target=delete)
    caller.start()
    assert not ended.is_set()
    storage.let_go(Operation.DELETE)
    assert ended.wait(30)
    caller.join()


@pytest.mark.parametrize("after", [0, 1, 99])
def test_a_file_breaks_at_its_byte_however_it_is_read(after: int) -> None:
    body = bytes(range(100))
    with pytest.raises(OSError, match="broke"):
        BreakingFile(body, after=after).read()
    by_read, by_readinto = (BreakingFile(body, after=after) for _ in range(2))
    got = bytearray(after)
    for begin in range(0, after, 7):
        assert by_read.read(7) == body[begin : min(begin + 7, after)]
        by_readinto.readinto(memoryview(got)[begin : begin + 7])
    assert got == body[:after]
    with pytest.raises(OSError, match="broke"):
        by_read.read(1)
    with pytest.raises(OSError, match="broke"):
        by_readinto.readinto(bytearray(1))
