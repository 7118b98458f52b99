"""What is read back of a copy, part by part; the store is a dictionary."""

from contextlib import nullcontext
from io import BytesIO
from typing import BinaryIO

import pytest

from rlm.maintenance.read_back import read_back
from rsm_plugins.api import RemoteObjectDamagedError
from rsm_plugins.contract.samples import INDEX_BYTES, LOG_BYTES, segment, segment_data
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import IndexType, RemoteLogSegmentMetadata


class Answers(LocalFsRemoteStorageManager):
    """Gives back what it is told to, and notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.log, self.indexes = LOG_BYTES, dict(INDEX_BYTES)
        self.asked: list[object] = []

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int,
        end_position: int | None = None,
    ) -> BinaryIO:
        self.asked.append((start_position, end_position))
        assert end_position is not None
        return BytesIO(self.log[start_position : end_position + 1])

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> BinaryIO:
        self.asked.append(index_type)
        return BytesIO(self.indexes[index_type])


def look(store: Answers, *, transactions: bool = True) -> None:
    data = segment_data(transactions=transactions)
    for file in data.files():
        file.read()  # as a copy leaves them
    read_back(store, segment(), data, lambda _: nullcontext())


def test_one_byte_of_the_log_and_each_index_are_read() -> None:
    store = Answers()
    look(store)
    last = len(LOG_BYTES) - 1
    assert store.asked[0] == (last, last)
    assert set(store.asked[1:]) == set(IndexType)


def test_a_segment_without_transactions_has_no_index_of_them() -> None:
    store = Answers()
    look(store, transactions=False)
    assert IndexType.TRANSACTION not in store.asked


@pytest.mark.parametrize("kind", IndexType)
@pytest.mark.parametrize("as_long", [True, False])
def test_another_index_than_was_copied_is_named(kind: IndexType, as_long: bool) -> None:
    store = Answers()
    store.indexes[kind] = bytes(len(INDEX_BYTES[kind])) if as_long else INDEX_BYTES[kind][:-1]
    with pytest.raises(RemoteObjectDamagedError, match=f"its index {kind.value}: "):
        look(store)


@pytest.mark.parametrize("log", [LOG_BYTES[:-1], LOG_BYTES[:-1] + b"\xff"])
def test_another_last_byte_than_was_copied_is_named(log: bytes) -> None:
    store = Answers()
    store.log = log
    with pytest.raises(RemoteObjectDamagedError, match="the end of its log: "):
        look(store)
